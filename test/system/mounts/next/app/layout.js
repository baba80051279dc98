// Next wants a layout where there is an app.
export default function Layout({ children }) {
  return children
}
