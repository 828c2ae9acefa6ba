import { hydrate } from 'preact'
import { Page } from './page.jsx'

hydrate(<Page path={location.pathname} />, document.getElementById('app'))
