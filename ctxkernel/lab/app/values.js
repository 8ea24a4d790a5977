/** Values of messages, which may be any JSON, and numbers for people. */

/**
 * A value of a message or of a saved output as text: any JSON may stand where a text is meant.
 * @param {unknown} value
 */
function textOf(value) {
  if (typeof value === 'string') return value;
  if (value === null || value === undefined) return '';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** @template T @param {readonly T[] | null | undefined} value @returns {readonly T[]} */
const list = (value) => (Array.isArray(value) ? value : []);

/** @template {object} T @param {T | null | undefined} value @returns {Partial<T>} */
const dict = (value) => (value && typeof value === 'object' && !Array.isArray(value) ? value : {});

/** @param {unknown} value */
const number = (value) => (typeof value === 'number' && Number.isFinite(value) ? value : null);

const integer = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

/** @param {unknown} value */
const count = (value) => integer.format(number(value) ?? 0);

/** @param {number} n @param {string} one @param {string} [many] */
const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/**
 * Milliseconds for people, in the units of `ctxkernel.core.text`: `<1 ms`, `120 ms`, `1.24 s`, `2 min 05 s`, `1 h 02 min`.
 * @param {unknown} value
 */
function duration(value) {
  const ms = number(value);
  if (ms === null) return '';
  if (ms < 1) return '<1 ms';
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 9995) return `${(ms / 1000).toFixed(2)} s`;
  if (ms < 59950) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  if (s < 3600) return `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, '0')} s`;
  return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, '0')} min`;
}

/** Bytes for people, in decimal units. @param {unknown} value */
function bytes(value) {
  let n = number(value);
  if (n === null) return '';
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let i = 0;
  while (n >= 999.5 && i < units.length - 1) {
    n /= 1000;
    i += 1;
  }
  return `${i && n < 9.95 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

/** A time of day, in the reader's zone. @param {unknown} value Unix time */
function clock(value) {
  const unix = number(value);
  return unix === null ? '' : new Date(unix * 1000).toLocaleTimeString([], { hour12: false });
}

/**
 * What a response, or an ask, has cost: `4,120 tokens · $0.0041`.
 * @param {{tokens?: number | null, usd?: number | null}} row
 */
function spentTold(row) {
  const [tokens, usd] = [number(row.tokens), number(row.usd)];
  return [tokens ? `${count(tokens)} tokens` : '', usd === null ? '' : `$${usd.toFixed(usd < 1 ? 4 : 2)}`]
    .filter(Boolean)
    .join(' · ');
}

export { textOf, list, dict, number, count, plural, duration, bytes, clock, spentTold };
