// The package stays as it is: it finds its files by its own location.
export default { serverExternalPackages: ['millrace'], devIndicators: false }
