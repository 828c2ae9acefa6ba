import { renderToString } from 'preact-render-to-string'
import { Page } from './page.jsx'

export const render = (path) => renderToString(<Page path={path} />)
