/**
 * All words that the console shows, in English. A translation is another object of the same shape.
 *
 *   import { text } from "../text";
 *   <h1>{text.projects.title}</h1>
 */

import * as common from "./common";
import * as compute from "./compute";
import * as databases from "./databases";
import * as monitors from "./monitors";
import * as operator from "./operator";
import * as organization from "./organization";
import * as pages from "./pages";
import * as projectTabs from "./project-tabs";

export const text = {
  ...common,
  ...pages,
  ...projectTabs,
  ...organization,
  ...compute,
  ...databases,
  ...monitors,
  ...operator,
};
