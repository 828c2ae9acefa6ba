/** Sets the theme before the first paint. A file of its own, because modules run later. */

const pinned = localStorage.getItem("moorage.theme");
const isDark = pinned ? pinned === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.classList.toggle("dark", isDark);
