// Before anything is painted, so that nothing moves when the other scripts have come.
document.documentElement.classList.add("js");
