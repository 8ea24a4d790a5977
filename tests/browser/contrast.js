// Contrast ratio (WCAG) of every visible text in an element, the worst first: [ratio, text, class].
(panel) => {
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = 1;
  const paint = canvas.getContext('2d', { willReadFrequently: true });
  // Painted rather than parsed: colours come as rgb(), color(srgb …), color-mix() results and names.
  const rgba = (css) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = css;
    paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, under) => [0, 1, 2].map((i) => (top[i] * top[3] + under[i] * (255 - top[3])) / 255).concat(255);
  const ground = (el) =>
    el ? over(rgba(getComputedStyle(el).backgroundColor), ground(el.parentElement)) : [255, 255, 255, 255];
  const light = (colour) => {
    const [r, g, b] = colour.map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  const walk = document.createTreeWalker(panel, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const el = walk.currentNode.parentElement;
    const text = walk.currentNode.textContent.trim();
    if (!text || !el.checkVisibility() || el.closest('.ctxk-sr')) continue;
    const back = ground(el);
    const [x, y] = [light(over(rgba(getComputedStyle(el).color), back)), light(back)];
    found.push([(Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05), text.slice(0, 40), el.className]);
  }
  return found.sort((a, b) => a[0] - b[0]);
};
