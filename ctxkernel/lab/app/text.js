/**
 * Texts of cells, models and exceptions, made safe to read: nothing that is not seen stays unseen.
 *
 * Rule: every text is untrusted. It enters the page as a text node or as the `title` property (elements.js).
 */

import { textOf } from './values.js';

// ESC sequences: CSI, OSC up to their terminator, and two-byte ones. An OSC without an end hides no more than its start.
const ANSI = /[\x1b\x9b](?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)|[ -/]*[0-~])?/g;

// Characters that are not seen or that reorder their line, as in core/text.py: code would read otherwise than it runs.
const EMOJI = '\\ufe0f\\u00a9\\u00ae\\u203c-\\u3299\\u{1f000}-\\u{1faff}';
const HIDDEN = new RegExp(
  '\\r(?!\\n)|[\\u034f\\u17b4\\u17b5\\u180b-\\u180f\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f\\u00ad\\u061c\\u115f\\u1160' +
    '\\u200b\\u200c\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u2800\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb\\u{d800}-\\u{dfff}' +
    `\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}]|(?<![${EMOJI}])\\u200d|(?<![${EMOJI}\\d#*])[\\ufe00-\\ufe0f]`,
  'gu'
);
/** Most texts: they are shown as they are, at little cost. */
const PLAIN = /^[\t\n\x20-\x7e]*$/;
/** Hidden characters at which Python or IPython begins another line. */
const BREAKS = new Set('\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029');

/** @param {string} char */
const codePoint = (char) => (char.codePointAt(0) ?? 0).toString(16);

/**
 * Code, or any text, with each character that is not seen as a mark such as `⟨U+202E⟩`: nothing is left out of it.
 * @param {unknown} value
 */
function marked(value) {
  const text = textOf(value);
  if (PLAIN.test(text)) return text;
  return text
    .replace(/\r\n/g, '\n')
    .replace(HIDDEN, (char) => `⟨U+${codePoint(char).toUpperCase().padStart(4, '0')}⟩${BREAKS.has(char) ? '\n' : ''}`);
}

/**
 * Python code with these characters as escapes (`\u202e`), or as line breaks where they are some.
 * @param {unknown} value
 */
function escaped(value) {
  return textOf(value).replace(/\r\n/g, '\n').replace(HIDDEN, (char) => {
    const digits = codePoint(char);
    if (BREAKS.has(char)) return '\n';
    return digits.length > 4 ? `\\U${digits.padStart(8, '0')}` : `\\u${digits.padStart(4, '0')}`;
  });
}

/**
 * What a cell printed, as it may be shown: no terminal codes; of a line that was overwritten, its last state. Code is
 * `marked` instead: here, text disappears.
 * @param {unknown} value
 */
function clean(value) {
  const text = textOf(value);
  if (PLAIN.test(text)) return text;
  return marked(
    text
      .replace(ANSI, '')
      .replace(/\r+\n/g, '\n')
      .replace(/^.*\r(?=[^\n])/gm, '')
  );
}

/**
 * The first line of code that is not blank and not only a comment or a magic's name, if there is one.
 * @param {unknown} source
 */
function headline(source) {
  const lines = marked(source)
    .split('\n')
    .map((line) => line.trim())
    .filter(Boolean);
  return lines.find((line) => !line.startsWith('#')) ?? lines[0] ?? '(empty)';
}

/**
 * A text as one word of a `%ctx` line: what a person types comes through unchanged, but for its line breaks.
 *
 * The kernel splits the line as a shell would; before that IPython fills in `{name}` and `$name`, which must not happen
 * to a text. `$$` stands for `$` only where an even number of `'` follows before the next brace, or the end.
 * @param {unknown} text
 */
function quoted(text) {
  const line = clean(text).replace(/\s+/g, ' ').trim();
  // What begins with a dash would be read as an option.
  const word = `${line.startsWith('-') ? ' ' : ''}${line.replace(/["\\]/g, '\\$&')}`;
  const filled = word
    .split(/(?<=[{}])/)
    .map((part) =>
      part
        .replace(/\$(?=[\p{L}\p{N}_.])/gu, (sign, at) => (part.slice(at).split("'").length % 2 ? '$$' : sign))
        .replace(/[{}]$/, '$&$&')
    )
    .join('');
  return `"${filled}"`;
}

/** The text of which `quoted` made a word. @param {string} word */
const unquoted = (word) =>
  word
    .replace(/^"|"$/g, '')
    .replace(/([{}])\1/g, '$1')
    .replace(/\$\$(?=[\p{L}\p{N}_.])/gu, '$$')
    .replace(/\\(["\\])/g, '$1');

/** What an error says. @param {unknown} error */
const reasonOf = (error) => (error instanceof Error ? error.message : String(error));

export { marked, escaped, clean, headline, quoted, unquoted, reasonOf };
