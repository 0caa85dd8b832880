"use strict";
// Say beside a table that is wider than the page that it can be scrolled.

function markWide() {
  for (const part of document.querySelectorAll(".scroll")) {
    part.classList.toggle("wide", part.scrollWidth > part.clientWidth + 1);
  }
}

window.addEventListener("resize", markWide);
document.addEventListener("toggle", markWide, true);
