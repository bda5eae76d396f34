// Pages are rendered in the time zone of the reader: this cookie tells the server which one it is.
(() => {
  "use strict";
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone) document.cookie = `time_zone=${encodeURIComponent(zone)}; path=/; max-age=31536000; SameSite=Lax`;
})();
