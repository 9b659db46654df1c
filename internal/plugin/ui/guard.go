package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// guard decides which requests come from the user's page.
type guard struct {
	// host is the value of the header Host, with the port. Another name that resolves to this machine is an attack (DNS rebinding).
	host string
	// base is a secret path. Browsers send a cookie to all ports of a host, but only below its path: so other servers on this machine
	// do not receive the cookie.
	base string
	// session is the value of the cookie.
	session string

	mu sync.Mutex
	// token is exchanged for the cookie once; empty afterwards.
	token string
}

const cookieName = "yardmaster-ui"

func newGuard(host string) *guard {
	return &guard{host: host, base: "/" + strings.ToLower(rand.Text()), session: rand.Text(), token: rand.Text()}
}

func (g *guard) origin() string { return "http://" + g.host }

// check returns why a request is refused; empty if it is not. The login has no cookie yet.
func (g *guard) check(r *http.Request) (status int, reason string) {
	isLogin := r.URL.Path == g.base+"/login"
	// Only addresses that the user opened, and requests of our own page. Browsers since 2023 send the header; without it, cookie and
	// Origin protect alone.
	isSameOrigin := slices.Contains([]string{"", "same-origin", "none"}, r.Header.Get("Sec-Fetch-Site"))
	switch {
	case r.Host != g.host:
		return http.StatusMisdirectedRequest, "the header Host is not " + g.host
	case !strings.HasPrefix(r.URL.Path, g.base+"/"):
		return http.StatusNotFound, "there is no such page"
	case !isLogin && !isSameOrigin:
		return http.StatusForbidden, "the request comes from another page"
	case !isLogin && !g.hasCookie(r):
		return http.StatusUnauthorized, "open the address that kubectl yardmaster ui printed; it works once, so start the command again if you used it in another browser"
	case r.Method == http.MethodPost && r.Header.Get("Origin") != g.origin(): // another page of the same machine could request a change
		return http.StatusForbidden, "the header Origin is not " + g.origin()
	case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost:
		return http.StatusMethodNotAllowed, "the method must be GET or POST"
	default:
		return 0, ""
	}
}

func (g *guard) hasCookie(r *http.Request) bool {
	cookie, err := r.Cookie(cookieName)
	return err == nil && isEqual(cookie.Value, g.session)
}

func isEqual(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// exchange returns the cookie for the token, once.
func (g *guard) exchange(token string) *http.Cookie {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.token == "" || !isEqual(token, g.token) {
		return nil
	}
	g.token = ""
	//nolint:gosec // Secure requires TLS, which a server on 127.0.0.1 does not have.
	return &http.Cookie{Name: cookieName, Value: g.session, Path: g.base + "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}
}

// contentSecurityPolicy allows only our own files, and no inline script or style.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'"

var securityHeaders = map[string]string{
	"Content-Security-Policy": contentSecurityPolicy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
	"Referrer-Policy":            "no-referrer",
	"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
}
