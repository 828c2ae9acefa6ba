/**
 * All words that the console shows, in English. A translation is another object of the same shape.
 *
 *   import { text } from "../text";
 *   <h1>{text.projects.title}</h1>
 */

import * as common from "./common";
import * as pages from "./pages";

export const text = { ...common, ...pages };
