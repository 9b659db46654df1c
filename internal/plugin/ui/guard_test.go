package ui

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/yardmaster/yardmaster/test/require"
)

const testHost = "127.0.0.1:4711"

func newTestRequest(g *guard, method, path string) *http.Request {
	r := httptest.NewRequest(method, "http://"+testHost+g.base+path, http.NoBody)
	r.AddCookie(&http.Cookie{Name: cookieName, Value: g.session})
	return r
}

func TestRequestsOfThePageAreAccepted(t *testing.T) {
	g := newGuard(testHost)
	for _, site := range []string{"", "same-origin", "none"} {
		r := newTestRequest(g, http.MethodGet, "/")
		r.Header.Set("Sec-Fetch-Site", site)
		if status, reason := g.check(r); reason != "" {
			t.Errorf("Sec-Fetch-Site %q: %d %s", site, status, reason)
		}
	}
	post := newTestRequest(g, http.MethodPost, "/k/seq/a/etl/action")
	post.Header.Set("Origin", "http://"+testHost)
	if status, reason := g.check(post); reason != "" {
		t.Errorf("POST: %d %s", status, reason)
	}
}

func TestRequestsOfOthersAreRefused(t *testing.T) {
	for name, row := range map[string]struct {
		method string
		change func(*guard, *http.Request)
		want   int
	}{
		"another name that resolves to this machine (DNS rebinding)": {http.MethodGet, func(_ *guard, r *http.Request) { r.Host = "evil.example:4711" }, http.StatusMisdirectedRequest},
		"localhost instead of the address":                           {http.MethodGet, func(_ *guard, r *http.Request) { r.Host = "localhost:4711" }, http.StatusMisdirectedRequest},
		"another port":                                               {http.MethodGet, func(_ *guard, r *http.Request) { r.Host = "127.0.0.1:80" }, http.StatusMisdirectedRequest},
		"a path without the secret part":                             {http.MethodGet, func(_ *guard, r *http.Request) { r.URL.Path = "/" }, http.StatusNotFound},
		"a path that only begins like it":                            {http.MethodGet, func(g *guard, r *http.Request) { r.URL.Path = g.base + "x/" }, http.StatusNotFound},
		"no cookie":                                                  {http.MethodGet, func(_ *guard, r *http.Request) { r.Header.Del("Cookie") }, http.StatusUnauthorized},
		"another cookie": {http.MethodGet, func(_ *guard, r *http.Request) {
			r.Header.Set("Cookie", cookieName+"=guess")
		}, http.StatusUnauthorized},
		"the token instead of the cookie": {http.MethodGet, func(g *guard, r *http.Request) {
			r.Header.Del("Cookie")
			r.URL.RawQuery = url.Values{"token": {g.token}}.Encode()
		}, http.StatusUnauthorized},
		"a page of another site":                    {http.MethodGet, func(_ *guard, r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
		"a page of another port of this machine":    {http.MethodGet, func(_ *guard, r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, http.StatusForbidden},
		"a change without an Origin":                {http.MethodPost, func(*guard, *http.Request) {}, http.StatusForbidden},
		"a change from another port":                {http.MethodPost, func(_ *guard, r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:80") }, http.StatusForbidden},
		"a change from a page without an origin":    {http.MethodPost, func(_ *guard, r *http.Request) { r.Header.Set("Origin", "null") }, http.StatusForbidden},
		"a change from an origin that begins alike": {http.MethodPost, func(_ *guard, r *http.Request) { r.Header.Set("Origin", "http://"+testHost+".evil.example") }, http.StatusForbidden},
		"a change from our origin without the cookie": {http.MethodPost, func(_ *guard, r *http.Request) {
			r.Header.Set("Origin", "http://"+testHost)
			r.Header.Del("Cookie")
		}, http.StatusUnauthorized},
		"another method": {http.MethodDelete, func(_ *guard, r *http.Request) { r.Header.Set("Origin", "http://"+testHost) }, http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(testHost)
			r := newTestRequest(g, row.method, "/")
			row.change(g, r)
			if status, reason := g.check(r); status != row.want || reason == "" {
				t.Errorf("status %d (%s), want %d", status, reason, row.want)
			}
		})
	}
}

func TestTokenIsExchangedOnceForACookieThatScriptsAndOtherSitesDoNotGet(t *testing.T) {
	s := newTestServer(t, nil)
	address, err := url.Parse(s.URL())
	require.NoError(t, err)
	first := s.do(httptest.NewRequest(http.MethodGet, address.String(), http.NoBody))
	require.True(t, first.Code == http.StatusOK && len(first.Result().Cookies()) == 1, "status %d, cookies %v", first.Code, first.Result().Cookies())
	cookie := first.Result().Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != s.guard.base+"/" || cookie.Domain != "" {
		t.Errorf("cookie %v", cookie)
	}
	if second := s.do(httptest.NewRequest(http.MethodGet, address.String(), http.NoBody)); second.Code != http.StatusForbidden || len(second.Result().Cookies()) != 0 {
		t.Errorf("the second use has status %d and cookies %v", second.Code, second.Result().Cookies())
	}
	for _, token := range []string{"", "guess"} {
		other := newTestServer(t, nil)
		r := httptest.NewRequest(http.MethodGet, "http://"+testHost+other.guard.base+"/login?token="+token, http.NoBody)
		if got := other.do(r); got.Code != http.StatusForbidden {
			t.Errorf("token %q: status %d", token, got.Code)
		}
	}
}

func TestEachAnswerForbidsInlineScriptsFramesAndOtherSites(t *testing.T) {
	s := newTestServer(t, nil)
	for _, path := range []string{"/", "/k/seq", "/stale", "/static/ui.js", "/static/ui.css", "/nothing", "/k/seq/a/etl/action?do=suspend", "/explain"} {
		header := s.get(path).Header()
		policy := header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
			require.True(t, strings.Contains(policy, part), "%s: the policy lacks %s: %s", path, part, policy)
		}
		if strings.Contains(policy, "unsafe") || header.Get("X-Frame-Options") != "DENY" || header.Get("Referrer-Policy") != "no-referrer" || header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: headers %v", path, header)
		}
	}
}

func TestRefusedRequestsGetThePolicyToo(t *testing.T) {
	s := newTestServer(t, nil)
	r := httptest.NewRequest(http.MethodGet, "http://evil.example/", http.NoBody)
	if got := s.do(r); got.Code != http.StatusMisdirectedRequest || got.Header().Get("Content-Security-Policy") == "" {
		t.Errorf("status %d, headers %v", got.Code, got.Header())
	}
}

func TestUIOpensThePageOfALink(t *testing.T) {
	for path, want := range map[string]bool{
		"/": true, "/k/seq/a/etl?log=load": true, "/search?q=x": true, "/k/queue/a/mail/dead": true,
		"": false, "k/seq": false, "//evil.example/k/seq": false, "https://evil.example/": false, "/login": false, "/k/other": false, "/%zz": false,
	} {
		if got := IsPage(path); got != want {
			t.Errorf("%q is a page: %t", path, got)
		}
	}
	s := newTestServer(t, nil)
	s.Open = "/k/seq/a/etl?log=load"
	address, err := url.Parse(s.URL())
	require.NoError(t, err)
	login := s.do(httptest.NewRequest(http.MethodGet, address.String(), http.NoBody))
	require.Contains(t, login.Body.String(), s.guard.base+"/k/seq/a/etl?log=load")
}
