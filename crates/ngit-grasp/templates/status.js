// Keeps the status page up to date: the server sends the same part of the page again, and what
// differs is changed in place, so that focus, selection and scroll stay where they are.
'use strict';

(() => {
  const shown = document.getElementById('status');
  const live = document.getElementById('live');
  if (!shown || !live || !window.EventSource) {
    return;
  }
  const again = 30000;

  const follow = () => {
    const events = new EventSource(shown.dataset.events);
    events.addEventListener('open', () => {
      live.textContent = live.dataset.live;
    });
    events.addEventListener('status', (event) => {
      const page = new DOMParser().parseFromString(JSON.parse(event.data), 'text/html');
      morph(shown, page.body);
    });
    events.addEventListener('error', () => {
      live.textContent = live.dataset.lost;
      // The browser tries again by itself, unless it was turned away.
      if (events.readyState === EventSource.CLOSED) {
        setTimeout(follow, again);
      }
    });
  };

  const morph = (old, fresh) => {
    const before = visible(old);
    const after = visible(fresh);
    after.forEach((node, place) => {
      const there = before[place];
      if (!there) {
        old.append(document.importNode(node, true));
      } else if (!same(there, node)) {
        there.replaceWith(document.importNode(node, true));
      } else if (node.nodeType === Node.TEXT_NODE) {
        if (there.data !== node.data) {
          there.data = node.data;
        }
      } else {
        dress(there, node);
        morph(there, node);
      }
    });
    before.slice(after.length).forEach((node) => node.remove());
  };

  const visible = (parent) =>
    [...parent.childNodes].filter(
      (node) => node.nodeType === Node.ELEMENT_NODE || node.nodeType === Node.TEXT_NODE,
    );

  const same = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName;

  const dress = (old, fresh) => {
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) {
        old.setAttribute(name, value);
      }
    }
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name)) {
        old.removeAttribute(name);
      }
    }
  };

  follow();
})();
