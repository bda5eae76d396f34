{% load static %}// Shows pushed notifications, and a page that says so while the portal cannot be reached. Nothing else is cached:
// every page belongs to whoever is logged in.
"use strict";
const CACHE = "catherder-offline-1";
const OFFLINE = ["{% url 'offline' %}", "{% static 'catherder/catherder.css' %}"];

addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(OFFLINE)).then(() => skipWaiting()));
});

addEventListener("activate", (event) => {
  event.waitUntil(caches.keys().then((names) =>
    Promise.all(names.filter((name) => name !== CACHE).map((name) => caches.delete(name)))));
});

addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.mode === "navigate") event.respondWith(fetch(request).catch(() => caches.match(OFFLINE[0])));
  else if (request.url === new URL(OFFLINE[1], location).href) event.respondWith(fetch(request).catch(() => caches.match(OFFLINE[1])));
});

addEventListener("push", (event) => {
  const told = event.data ? event.data.json() : {};
  event.waitUntil(registration.showNotification(told.title || "Cat Herder", {
    body: told.body, tag: told.tag, icon: "{% static 'catherder/app-192.png' %}",
    data: { url: told.url || "/", decide: told.decide }, actions: told.actions || [],
  }));
});

// Sends the verdict that was clicked, and shows what became of it. What the portal refuses is decided on its page.
async function decide({ title, body, tag, icon, data }, verdict) {
  let answer, message;
  try {
    answer = await fetch(data.decide.url, {
      method: "POST", redirect: "manual", body: new URLSearchParams({ verdict, signature: data.decide.signature }),
    });
    if (answer.type === "opaqueredirect") message = "Log in to decide.";
    else if ((answer.headers.get("Content-Type") || "").includes("json")) ({ message } = await answer.json());
  } catch {
    message = "The portal cannot be reached. Nothing was decided.";
  }
  await registration.showNotification(message || "Open the question to decide.", {
    body: `${title}\n${body}`, tag, icon, data: { url: data.url },
  });
  if (!answer || !answer.ok) await show(data.url);
}

function show(path) {
  return clients.matchAll({ type: "window" }).then((open) => {
    const here = open.find((client) => new URL(client.url).pathname === path);
    return here ? here.focus() : clients.openWindow(path);
  });
}

addEventListener("notificationclick", (event) => {
  const { notification, action } = event;
  notification.close();
  if (notification.data.decide && action) event.waitUntil(decide(notification, action));
  else event.waitUntil(show(action === "inbox" ? "/inbox/" : notification.data.url));
});
