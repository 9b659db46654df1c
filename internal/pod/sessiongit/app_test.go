package sessiongit

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/test/faults"
	"github.com/yardmaster/yardmaster/test/gitserver"
	"github.com/yardmaster/yardmaster/test/output"
	"github.com/yardmaster/yardmaster/test/require"
)

// testKey is the private key of the App, which takes long to make.
var testKey = sync.OnceValue(func() *rsa.PrivateKey {
	const bits = 2048
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return key
})

const testAppID = "Iv1.app"

func encodeKey(t *testing.T, kind string, key any) string {
	t.Helper()
	raw, err := []byte(nil), error(nil)
	switch key := key.(type) {
	case *rsa.PublicKey:
		raw = x509.MarshalPKCS1PublicKey(key)
	case *rsa.PrivateKey:
		if raw = x509.MarshalPKCS1PrivateKey(key); kind == "PRIVATE KEY" {
			raw, err = x509.MarshalPKCS8PrivateKey(key)
		}
	default:
		raw, err = x509.MarshalPKCS8PrivateKey(key)
	}
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}))
}

func writeSecret(t *testing.T, values map[string]string) (directory string) {
	t.Helper()
	directory = t.TempDir()
	for key, value := range values {
		require.NoError(t, os.WriteFile(filepath.Join(directory, key), []byte(value), 0o600))
	}
	return directory
}

func TestTheKeyOfAGitHubAppIsReadInEachForm(t *testing.T) {
	key := encodeKey(t, "RSA PRIVATE KEY", testKey())
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	for title, row := range map[string]struct{ id, key, want string }{
		"PKCS#1":                       {"123", key, ""},
		"PKCS#8":                       {"123", encodeKey(t, "PRIVATE KEY", testKey()), ""},
		"a client ID":                  {"Iv23liAbC", key, ""},
		"line feeds at the end":        {"123\n", key + "\n\n", ""},
		"line feeds of Windows":        {"123\r\n", strings.ReplaceAll(key, "\n", "\r\n"), ""},
		"spaces around it":             {" 123 ", "  " + key, ""},
		"no App":                       {"", "", ""},
		"no ID":                        {"", key, "githubAppID in the Secret of the SessionRunner's git is missing, githubAppPrivateKey requires it"},
		"no key":                       {"123", " \n", "githubAppPrivateKey in the Secret of the SessionRunner's git is missing, githubAppID requires it"},
		"an ID with a line feed":       {"1\n2", key, "githubAppID in the Secret of the SessionRunner's git is not the ID or the client ID of a GitHub App"},
		"the name of the App":          {"My App", key, "githubAppID in the Secret of the SessionRunner's git is not the ID or the client ID of a GitHub App"},
		"a password":                   {"123", "hunter2", "githubAppPrivateKey in the Secret of the SessionRunner's git is not in PEM form"},
		"escaped line feeds":           {"123", strings.ReplaceAll(key, "\n", `\n`), "githubAppPrivateKey in the Secret of the SessionRunner's git is not in PEM form"},
		"a part of the key":            {"123", key[:len(key)/2], "githubAppPrivateKey in the Secret of the SessionRunner's git is not in PEM form"},
		"a public key":                 {"123", encodeKey(t, "RSA PUBLIC KEY", &testKey().PublicKey), "githubAppPrivateKey in the Secret of the SessionRunner's git is not an RSA private key in the form PKCS#1 or PKCS#8"},
		"a key of an elliptic curve":   {"123", encodeKey(t, "PRIVATE KEY", curve), "githubAppPrivateKey in the Secret of the SessionRunner's git is not an RSA private key in the form PKCS#1 or PKCS#8"},
		"an SSH key instead of an App": {"123", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n", "githubAppPrivateKey in the Secret of the SessionRunner's git is not an RSA private key in the form PKCS#1 or PKCS#8"},
	} {
		app, err := readApp(writeSecret(t, map[string]string{appIDKey: row.id, appPrivateKey: row.key}))
		require.True(t, (app != nil) == (row.want == "" && row.id != "") && (err == nil) == (row.want == ""), "%s: App %v, error %v", title, app, err)
		require.True(t, err == nil || err.Error() == row.want && isPermanent(err), "%s: error %v", title, err)
		require.True(t, app == nil || app.id == strings.TrimSpace(row.id) && app.key.Equal(testKey()), "%s: another ID or key", title)
	}
	app, err := readApp(t.TempDir())
	require.True(t, app == nil && err == nil, "a Secret without an App: %v, %v", app, err)
}

// Faults of GitHub besides those of each server.
const (
	answersLimited      faults.Fault = "answers 403 because of too many requests"
	answersUnauthorized faults.Fault = "answers 401"
	answersForbidden    faults.Fault = "answers 403"
	answersNotFound     faults.Fault = "answers 404"
	answersInvalid      faults.Fault = "answers 422"
	answersError        faults.Fault = "answers 500"
	redirects           faults.Fault = "redirects to another server"
	answersTooMuch      faults.Fault = "answers with megabytes"
	hasDistantClock     faults.Fault = "has a clock that is a day ahead"
)

// moments are the requests with which an App gets and revokes a token.
const (
	finding  = "as the installation is searched"
	making   = "as the token is made"
	revoking = "as the token is revoked"
)

// appOutcome is how making, using and revoking a token ends.
type appOutcome struct {
	// Result is empty if git gets a token; otherwise, whether a retry makes sense, and when.
	Result string
	Wait   time.Duration
	// Valid is the number of tokens that are valid for another hour.
	Valid int
}

func TestGitHubMayFailWheneverAnAppAsksIt(t *testing.T) {
	files := t.TempDir()
	server, err := gitserver.New(t.Context(), files, tokenUsername, password)
	require.NoError(t, err)
	t.Cleanup(server.Close)
	server.SetApp(testAppID, &testKey().PublicKey)
	credentials := writeSecret(t, map[string]string{appIDKey: testAppID, appPrivateKey: encodeKey(t, "RSA PRIVATE KEY", testKey())})
	upstream, err := newHTTPClient(server.CAFile)
	require.NoError(t, err)
	address, err := url.Parse(server.URL + "/api/v3")
	require.NoError(t, err)

	var cells atomic.Int32
	run := func(t *testing.T, fault faults.Fault, moment string) appOutcome {
		repository := fmt.Sprintf("team/cell-%d", cells.Add(1))
		for _, name := range []string{repository, repository + "-other"} {
			require.NoError(t, os.Symlink(server.Repository(), filepath.Join(files, name+".git")))
		}
		var elsewhere atomic.Int32
		other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
		defer other.Close()
		front := &faultyGitHub{server: server, fault: fault, moment: moment, repository: repository, other: other.URL}
		front.proxy = &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(address); r.Out.Host = address.Host }, Transport: upstream.Transport,
			ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		}
		api := httptest.NewUnstartedServer(front)
		api.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		api.StartTLS()
		defer api.Close()

		scope, err := ParseScope([]string{server.Host + "/team/*"})
		require.NoError(t, err)
		log := &output.Buffer{}
		client := &forgeClient{forge: GitHub, api: api.URL, credentials: credentials, scope: scope, log: slog.New(slog.NewTextHandler(log, nil))}
		client.http, err = newHTTPClient("")
		require.NoError(t, err)
		client.http.Transport = api.Client().Transport
		if fault == faults.Hangs {
			client.http.Transport = impatient{client.http.Transport, moment}
		}
		token, revoke, err := client.appToken(t.Context(), server.URL+"/"+repository+".git", readAccess)
		var got appOutcome
		switch made := server.AppTokens()[token]; {
		case err != nil && isPermanent(err):
			got.Result = "permanent"
		case err != nil:
			got.Result, got.Wait = "transient", waitOf(err)
		case made.Repository != repository:
			got.Result = "refused by git"
		}
		revoke()
		client.revocations.Wait()
		for token, made := range server.AppTokens() {
			if !strings.HasPrefix(made.Repository+"-", repository+"-") {
				continue
			}
			if !made.Revoked {
				got.Valid++
			}
			require.True(t, made.Permissions["contents"] == "read" && len(made.Permissions) == 2, "a token to read has %v", made.Permissions)
			require.True(t, !strings.Contains(fmt.Sprint(err, log), token), "error or log contain the token: %v %s", err, log)
		}
		t.Logf("error %v, log %s", err, log)
		assertion, isAsked := front.assertion.Load().(string)
		require.True(t, !isAsked || !strings.Contains(fmt.Sprint(err, log), assertion), "error or log contain the assertion: %v %s", err, log)
		require.Equal(t, 0, elsewhere.Load()) // no request was redirected
		return got
	}

	rule := func(fault faults.Fault, moment string) faults.Expectation[appOutcome] {
		works := appOutcome{}
		switch fault {
		case faults.AnswersSlowly, faults.HasClockThatJumpsAhead, faults.HasClockThatJumpsBack:
			return faults.Expect(works)
		case hasDistantClock: // GitHub would get assertions for another day
			return faults.Expect(appOutcome{Result: "permanent"})
		}
		isDone := fault == faults.AnswersTwice || fault == faults.Disappears // but the answer cannot be read
		if moment == revoking {
			if !isDone {
				works.Valid = 1
			}
			return faults.Expect(works)
		}
		want := appOutcome{Result: "transient"}
		switch fault {
		case faults.ComesBackWithOldState:
			want.Result = map[string]string{finding: "permanent", making: "refused by git"}[moment]
		case faults.IsReplaced, answersUnauthorized, answersForbidden, answersNotFound, answersInvalid, redirects:
			want.Result = "permanent"
		case faults.IsFull:
			want.Wait = 7 * time.Second
		case answersLimited:
			want.Wait = time.Minute
		}
		if isDone && moment == making {
			want.Valid = 1
		}
		return faults.Expect(want)
	}
	all := append(faults.Of(faults.Server, faults.Clock), answersLimited, answersUnauthorized, answersForbidden, answersNotFound, answersInvalid, answersError,
		redirects, answersTooMuch, hasDistantClock)
	faults.Matrix(t, "GitHub", all, []string{finding, making, revoking}, rule, run)
}

func momentOf(r *http.Request) string {
	return map[string]string{http.MethodGet: finding, http.MethodPost: making, http.MethodDelete: revoking}[r.Method]
}

// impatient waits a second for the answer at a moment. Other requests have the time that a busy machine needs.
type impatient struct {
	http.RoundTripper
	moment string
}

// RoundTrip implements http.RoundTripper.
func (i impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	if momentOf(r) != i.moment {
		return i.RoundTripper.RoundTrip(r)
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	return i.RoundTripper.RoundTrip(r.WithContext(ctx))
}

// faultyGitHub is the API of a server, with a fault in one request.
type faultyGitHub struct {
	server                    *gitserver.Server
	proxy                     *httputil.ReverseProxy
	fault                     faults.Fault
	moment, repository, other string
	assertion                 atomic.Value
}

// ServeHTTP implements http.Handler.
func (f *faultyGitHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	moment := momentOf(r)
	if moment == finding {
		f.assertion.Store(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	}
	ahead := map[faults.Fault]string{faults.HasClockThatJumpsAhead: "20m", faults.HasClockThatJumpsBack: "-20m", hasDistantClock: "24h"}[f.fault]
	r.Header.Set(gitserver.ClockHeader, ahead)
	if moment != f.moment || ahead != "" {
		f.proxy.ServeHTTP(w, r)
		return
	}
	fail := func(status int) { http.Error(w, r.Header.Get("Authorization"), status) } // a server that repeats it
	isToken := moment == making
	switch f.fault {
	case faults.NeverStarts:
		panic(http.ErrAbortHandler)
	case faults.StartsLate:
		fail(http.StatusServiceUnavailable)
	case faults.Hangs:
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	case faults.AnswersSlowly:
		select {
		case <-time.After(100 * time.Millisecond):
			f.proxy.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	case faults.AnswersWithGarbage:
		_, _ = io.WriteString(w, "<html>We are updating.</html>")
	case answersTooMuch:
		_, _ = io.WriteString(w, `{"id": 77, "token": "`)
		for range 3 {
			_, _ = w.Write(bytes.Repeat([]byte("x"), maxAnswerBytes))
		}
	case faults.AnswersTwice, faults.Disappears:
		answer := httptest.NewRecorder()
		f.proxy.ServeHTTP(answer, r)
		body := answer.Body.Bytes()
		if f.fault == faults.Disappears {
			w.Header().Set("Content-Length", "5000")
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body)
		if f.fault == faults.Disappears {
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(body)
	case faults.ComesBackWithOldState:
		if !isToken {
			fail(http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"token": "ghs_old"}`)
	case faults.IsReplaced:
		if !isToken {
			_, _ = io.WriteString(w, `{"id": 78}`)
			return
		}
		other := f.repository + "-other"
		token := f.server.MakeAppToken(other, map[string]string{"contents": "read", "metadata": "read"})
		_, _ = fmt.Fprintf(w, `{"token": %q, "repositories": [{"full_name": %q}, {"full_name": %q}]}`, token, f.repository, other)
	case faults.IsFull:
		w.Header().Set("Retry-After", "7")
		fail(http.StatusTooManyRequests)
	case answersLimited:
		w.Header().Set("X-Ratelimit-Remaining", "0")
		fail(http.StatusForbidden)
	case redirects:
		http.Redirect(w, r, f.other, http.StatusTemporaryRedirect)
	default:
		fail(map[faults.Fault]int{
			answersUnauthorized: http.StatusUnauthorized, answersForbidden: http.StatusForbidden, answersNotFound: http.StatusNotFound,
			answersInvalid: http.StatusUnprocessableEntity, answersError: http.StatusInternalServerError,
		}[f.fault])
	}
}

// A token of an App is for GitHub, and only repositories with an owner and a name have one.
func TestAnAppIsRefusedWhereItCannotWork(t *testing.T) {
	scope, err := ParseScope([]string{"git.example/**"})
	require.NoError(t, err)
	client := &forgeClient{credentials: writeSecret(t, map[string]string{appIDKey: testAppID, appPrivateKey: encodeKey(t, "RSA PRIVATE KEY", testKey())}), scope: scope}
	for repository, want := range map[string]string{
		"https://git.example/shop":        "shop is not owner/name, as repositories of GitHub are",
		"https://git.example/a/b/shop":    "a/b/shop is not owner/name, as repositories of GitHub are",
		"https://other.example/team/shop": "the SessionRunner allows no credentials for https://other.example/team/shop: add it to git.repositories",
	} {
		_, _, err = client.appToken(t.Context(), repository, readAccess)
		require.True(t, err != nil && err.Error() == want && errors.As(err, new(permanentError)), "%s: %v", repository, err)
	}
	client.forge = GitLab
	_, _, err = client.appToken(t.Context(), "https://git.example/team/shop", readAccess)
	require.ErrorContains(t, err, "git.forge is GitLab")
}
