// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package web

// What holds for every request: methods, host, and headers that tell a browser what a page may do.

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// contentSecurityPolicy: all comes from here, and nothing else works. Script and style are files, so none in the page can run.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

func (h *handler) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", contentSecurityPolicy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			header.Set("Allow", "GET, HEAD")
			h.fail(w, r, http.StatusMethodNotAllowed, "Nothing can be changed here: only GET and HEAD are answered.")
		case h.options.LoopbackOnly && !isLocalHost(r.Host):
			h.fail(w, r, http.StatusMisdirectedRequest,
				"This page listens on a loopback address and answers only to localhost and IP addresses, so that no web site can read it through a name of its own. "+
					"Open it as localhost, let the proxy in front send the header Host: localhost, or set another endpoint.")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isLocalHost tells whether a Host header can be trusted on a loopback listener. A web site that has its name resolve to
// 127.0.0.1 (DNS rebinding) sends that name; an address is never the name of a foreign site.
func isLocalHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	_, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil
}
