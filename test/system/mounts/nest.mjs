// Nest on Express, which reads JSON bodies before the server does.
import { Module } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { BASE, listening, server } from './server.mjs'

/** The module, which is empty. */
function App() {}
Module({})(App)

const app = await NestFactory.create(App, { logger: false })
app.use(BASE, server.node)
await app.listen(0, '127.0.0.1')
listening(app.getHttpServer().address().port)
