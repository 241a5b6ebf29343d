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
  let events = null;
  let failures = 0;

  const say = (text) => {
    if (live.textContent !== text) {
      live.textContent = text;
    }
  };

  const follow = () => {
    events = new EventSource(shown.dataset.events);
    events.addEventListener('status', (event) => {
      const page = new DOMParser().parseFromString(JSON.parse(event.data), 'text/html');
      failures = 0;
      say(live.dataset.live);
      // Between the sections a parser may find blanks or not.
      morph(shown, page.body, elements);
    });
    events.addEventListener('silence', () => say(live.dataset.silent));
    events.addEventListener('error', () => {
      // The server ends a stream after a while: only a second failure is one.
      failures += 1;
      if (failures > 1) {
        say(live.dataset.lost);
      }
      // The browser tries again by itself, unless it was turned away.
      if (events.readyState === EventSource.CLOSED) {
        events = null;
        setTimeout(resume, again);
      }
    });
  };

  // A page that nobody sees takes no place from those who look.
  const resume = () => {
    if (document.hidden && events) {
      events.close();
      events = null;
    } else if (!document.hidden && !events) {
      follow();
    }
  };

  const morph = (old, fresh, nodes) => {
    const before = nodes(old);
    const after = nodes(fresh);
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
        morph(there, node, visible);
      }
    });
    before.slice(after.length).forEach((node) => node.remove());
  };

  const elements = (parent) => [...parent.children];

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

  document.addEventListener('visibilitychange', resume);
  resume();
})();
