/**
 * The entry that JupyterLab loads: a hand-written module-federation container.
 *
 * Rule 1: a classic script (JupyterLab adds it with a plain <script>), so no static import or export.
 * Rule 2: it does nothing but hand out the plugin; a fault in the plugin must not reach Lab's start.
 * Rule 3: this folder must not be called `static`: Lab serves that one as immutable for a year, and
 *         an upgrade would then run old files. A wheel has the version in the folder's name
 *         (hatch_build.py), so that no cache can mix the modules of two versions.
 */
(() => {
  /** The front end's version: equal to ctxkernel's `__version__` and to `package.json` (a test compares them). */
  const VERSION = '0.1.0';

  // Taken now: `document.currentScript` is gone once this script has run.
  const base = /** @type {HTMLScriptElement} */ (document.currentScript).src;
  /** @type {Record<string, Record<string, {get: () => Promise<() => any>, loaded?: any}>>} */
  let scope = {};

  /**
   * One of the packages that Lab shares, as Lab itself uses it.
   * @param {string} name
   */
  async function shared(name) {
    const versions = Object.values(scope[name] ?? {});
    if (!versions.length)
      throw new Error(`jupyter-ctxkernel: this JupyterLab shares no ${name}; JupyterLab 4.2 or newer is needed`);
    return (await (versions.find((v) => v.loaded) ?? versions[0]).get())();
  }

  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB['jupyter-ctxkernel'] = {
    /** @param {typeof scope} shareScope */
    init(shareScope) {
      scope = shareScope;
    },
    /** @param {string} module */
    async get(module) {
      if (module !== './extension') throw new Error(`jupyter-ctxkernel: no module ${module}`);
      /** @type {typeof import('./plugin.js')} */
      const { createPlugin } = await import(new URL('plugin.js', base).href);
      const plugin = await createPlugin(shared, VERSION);
      return () => ({ __esModule: true, default: plugin });
    }
  };
})();
