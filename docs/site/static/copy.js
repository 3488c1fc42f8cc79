// Puts a button into each box of code that copies the code. Boxes of output have no button.
"use strict";

function copied(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea"); // for pages of a server without encryption
  area.value = text;
  area.style.position = "fixed";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done ? Promise.resolve() : Promise.reject(new Error("the browser has not copied the code"));
}

function addButton(box) {
  const button = document.createElement("button");
  button.className = "copy";
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", () => {
    copied(box.querySelector("pre").textContent)
      .then(() => "Copied", () => "Not copied")
      .then((text) => {
        button.textContent = text;
        setTimeout(() => (button.textContent = "Copy"), 1500);
      });
  });
  box.prepend(button);
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("div[class*='highlight-']:not(.highlight-text) > div.highlight").forEach(addButton);
});
