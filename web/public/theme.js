// Runs before the first paint, so that the theme does not flash. Without a choice the system's setting counts.
(function () {
  var chosen = null;
  try {
    chosen = localStorage.getItem('holdfast.theme');
  } catch (e) {
    // Storage is shut off: the system's setting counts.
  }
  var dark = chosen === 'dark' || (chosen !== 'light' && matchMedia('(prefers-color-scheme: dark)').matches);
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
})();
