// The list of operations, by Swagger UI, which comes with django-ninja.
(() => {
  const place = document.getElementById("api-reference");

  // Swagger UI has dark colours, but does not follow the page's colour scheme.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const page = document.documentElement;
  const follow = () => page.classList.toggle("dark-mode", (page.dataset.theme || (dark.matches && "dark")) === "dark");
  new MutationObserver(follow).observe(page, { attributeFilter: ["data-theme"] });
  dark.addEventListener("change", follow);
  follow();

  SwaggerUIBundle({
    url: place.dataset.document,
    domNode: place,
    docExpansion: "list",
    defaultModelsExpandDepth: 0,
    filter: true,
    showExtensions: true, // x-scope: what a token needs
    validatorUrl: null, // it would send the address of this installation to swagger.io
    requestInterceptor: (request) => {
      if (request.method && request.method !== "GET") request.headers["X-CSRFToken"] = place.dataset.csrf;
      return request;
    },
  });
})();
