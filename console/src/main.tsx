/** Starts the console: sign-in pages for strangers, the frame with all pages for those who are signed in. */

import "./styles/index.css";
import { render } from "preact";
import { ErrorBoundary, lazy, LocationProvider, Route, Router } from "preact-iso";
import { useEffect } from "preact/hooks";
import { hasExpired, isSignedIn, keepPlace } from "./api/session";
import { Crash } from "./frame/crash";
import { Frame } from "./frame/frame";
import { NotFound } from "./frame/notfound";
import "./lib/marks";
import "./lib/theme";
import { pageAt, PAGES } from "./pages";
import { Toasts } from "./ui/toast";

const RELOADED = "moorage.reloaded";

/** Load the code of a page. After an update of the platform old files are gone: then the new console is loaded, once. */
function loaded<T>(load: () => Promise<T>): () => Promise<T> {
  return async () => {
    try {
      const page = await load();
      sessionStorage.removeItem(RELOADED);
      return page;
    } catch (error) {
      if (sessionStorage.getItem(RELOADED) || !navigator.onLine) throw error;
      sessionStorage.setItem(RELOADED, "1");
      location.reload();
      return new Promise(() => undefined);
    }
  };
}

const SignIn = lazy(loaded(() => import("./pages/sign-in/sign-in")));
const SignInAgain = lazy(loaded(() => import("./pages/sign-in/again")));
const Setup = lazy(loaded(() => import("./pages/sign-in/setup")));
const Returned = lazy(loaded(() => import("./pages/sign-in/returned")));
const ROUTES = PAGES.map(({ path, load }) => ({ path, component: lazy(loaded(load)) }));

function Stranger() {
  useEffect(() => keepPlace(), []);
  return (
    <Router>
      <Route path="/setup" component={Setup} />
      <Route path="/sign-in/return" component={Returned} />
      <Route default component={SignIn} />
    </Router>
  );
}

function Console() {
  return (
    <Frame>
      <Router onRouteChange={() => scrollTo(0, 0)}>
        {ROUTES.map(({ path, component }) => (
          <Route key={path} path={path} component={component} />
        ))}
        <Route default component={NotFound} />
      </Router>
    </Frame>
  );
}

function App() {
  return (
    <LocationProvider>
      <Crash>{isSignedIn.value ? <Console /> : <Stranger />}</Crash>
      {isSignedIn.value && hasExpired.value && (
        <ErrorBoundary>
          <SignInAgain />
        </ErrorBoundary>
      )}
      <Toasts />
    </LocationProvider>
  );
}

// The code of the first page comes while the frame asks who this is.
if (isSignedIn.peek()) void pageAt(location.pathname)?.load().catch(() => undefined);
render(<App />, document.getElementById("root")!);
