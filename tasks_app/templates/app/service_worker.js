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
    data: { url: told.url || "/" }, actions: told.actions || [],
  }));
});

addEventListener("notificationclick", (event) => {
  event.notification.close();
  const path = event.action === "inbox" ? "/inbox/" : event.notification.data.url;
  event.waitUntil(clients.matchAll({ type: "window" }).then((open) => {
    const here = open.find((client) => new URL(client.url).pathname === path);
    return here ? here.focus() : clients.openWindow(path);
  }));
});
