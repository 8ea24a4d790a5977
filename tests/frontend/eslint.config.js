// What every script of the front end keeps, beside its types.
import js from '@eslint/js';
import globals from 'globals';

const HTML = 'Every text is untrusted: set it as a text node (h and put of elements.js), never as HTML.';
const HTML_WAYS = [
  'innerHTML',
  'outerHTML',
  'insertAdjacentHTML',
  'setHTMLUnsafe',
  'srcdoc',
  'createContextualFragment'
];

/** ctxkernel/export/bundle.py makes one module of several, and reads only this form. */
const FORM = [
  ['ExportNamedDeclaration[declaration]', 'Export names in one list at the end of the module.'],
  ['ExportDefaultDeclaration, ExportAllDeclaration', 'Export names in one list at the end of the module.'],
  ['Program > ExportNamedDeclaration:not(:last-child)', 'Export names in one list at the end of the module.'],
  ['Program > :not(ImportDeclaration) ~ ImportDeclaration', 'Import at the head of the module.'],
  ['ImportDefaultSpecifier, ImportNamespaceSpecifier', 'Import names in braces.']
];

export default [
  js.configs.recommended,
  {
    files: ['**/*.js'],
    languageOptions: { ecmaVersion: 2023, sourceType: 'module', globals: globals.browser },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      eqeqeq: 'error',
      'no-eval': 'error',
      'no-implied-eval': 'error',
      'no-new-func': 'error',
      'no-implicit-globals': 'error',
      'no-unused-vars': ['error', { args: 'after-used', argsIgnorePattern: '^_', ignoreRestSiblings: true }],
      'no-control-regex': 'off', // text.js looks for terminal codes
      'no-restricted-globals': ['error', { name: 'DOMParser', message: HTML }],
      'no-restricted-properties': [
        'error',
        ...HTML_WAYS.map((property) => ({ property, message: HTML })),
        { object: 'document', property: 'write', message: HTML }
      ],
      'no-restricted-syntax': ['error', ...FORM.map(([selector, message]) => ({ selector, message }))]
    }
  },
  { files: ['**/remoteEntry.js'], languageOptions: { sourceType: 'script' } }
];
