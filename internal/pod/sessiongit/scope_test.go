package sessiongit

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
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

// TestMain lets git start this program to ask for credentials, as session-runner does.
func TestMain(m *testing.M) {
	if IsAskpass() {
		answer, err := Askpass(os.Args[1:], os.Getenv)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(answer)
		return
	}
	os.Exit(m.Run())
}

const password = "token-of-the-forge"

// attempts are what a user with the right to create sessions tries, to read other/secret.git with the credentials of a SessionRunner
// that lists HOST/team/*, where HOST is an address and a port, and ADDRESS/team/* for SSH.
var attempts = map[string]string{
	"its URL":                              "https://HOST/other/secret.git",
	"without .git":                         "https://HOST/other/secret",
	"with a slash at its end":              "https://HOST/other/secret.git/",
	"with .git twice":                      "https://HOST/other/secret.git.git",
	"in another case":                      "HTTPS://HOST/Other/Secret.git",
	"a directory above a listed one":       "https://HOST/team/../other/secret.git",
	"above a listed repository":            "https://HOST/team/shop.git/../../other/secret.git",
	"with encoded dots":                    "https://HOST/team/%2e%2e/other/secret.git",
	"with one encoded dot":                 "https://HOST/team/.%2E/other/secret.git",
	"with an encoded slash":                "https://HOST/team/..%2fother/secret.git",
	"with a path encoded twice":            "https://HOST/team/%252e%252e/other/secret.git",
	"with an encoded name":                 "https://HOST/%6fther/secret.git",
	"with two slashes":                     "https://HOST//other/secret.git",
	"with an empty part below a listed":    "https://HOST/team//../other/secret.git",
	"with a dot as a part":                 "https://HOST/./other/secret.git",
	"with backslashes":                     `https://HOST/team\..\other/secret.git`,
	"with a listed one in the query":       "https://HOST/other/secret.git?/team/shop.git",
	"with a listed one in the fragment":    "https://HOST/other/secret.git#/team/shop.git",
	"with parameters":                      "https://HOST/team;/../other/secret.git",
	"with a listed host as the user":       "https://HOST@HOST/other/secret.git",
	"with a line feed":                     "https://HOST/team/shop.git\n/../../other/secret.git",
	"with a space":                         "https://HOST/team/shop.git /../../other/secret.git",
	"below a listed repository":            "https://HOST/team/shop/secret.git",
	"the directory of the listed ones":     "https://HOST/team",
	"a zero before the port":               "https://ADDRESS:0PORT/other/secret.git",
	"an address in IPv6":                   "https://[::ffff:ADDRESS]:PORT/other/secret.git",
	"digits that are not ASCII":            "https://１27.0.0.1:PORT/other/secret.git",
	"without TLS":                          "http://HOST/other/secret.git",
	"a file":                               "file:///other/secret.git",
	"a program":                            "ext::sh -c id% /team/shop.git",
	"SSH":                                  "git@ADDRESS:other/secret.git",
	"SSH with a scheme":                    "ssh://git@ADDRESS/other/secret.git",
	"SSH, above a listed one":              "git@ADDRESS:team/../other/secret.git",
	"SSH, with an absolute path":           "git@ADDRESS:/team/shop.git",
	"SSH, in the home of the user":         "ssh://git@ADDRESS/~/other/secret.git",
	"SSH, as another user":                 "ssh://root@ADDRESS/team/shop.git",
	"SSH, without a user":                  "ssh://ADDRESS/team/shop.git",
	"SSH, at another port":                 "ssh://git@ADDRESS:2222/team/shop.git",
	"SSH, with a quote in the path":        "git@ADDRESS:team/'/../other/secret.git",
	"SSH, with an option as the host":      "ssh://-oProxyCommand=id/team/shop.git",
	"SSH, with a password":                 "ssh://git:x@ADDRESS/team/shop.git",
	"SSH, with the path in a port's place": "git@ADDRESS:22/other/secret.git",
}

// unreachable are further attempts, in which git finds no server, and tries for minutes.
var unreachable = map[string]string{
	"a dot after the host": "https://ADDRESS.:PORT/other/secret.git",
	"another port":         "https://ADDRESS:1/team/shop.git",
}

// anonymous are addresses of the same server that no pattern names: their repositories are cloned, but without the credentials.
var anonymous = map[string]string{
	"a decimal address":       "https://2130706433:PORT/other/secret.git",
	"a hexadecimal address":   "https://0x7f000001:PORT/other/secret.git",
	"a short address":         "https://127.1:PORT/other/secret.git",
	"a name":                  "https://localhost:PORT/other/secret.git",
	"a listed path elsewhere": "https://localhost:PORT/team/shop.git",
}

// A user of sessions reaches no repository that the SessionRunner does not list: not with any URL, as the operator and the container each
// refuse it, and not with what a listed repository or its server contains.
func TestAUserOfSessionsReachesNoOtherRepository(t *testing.T) {
	s := newScopeTest(t)
	scope, err := ParseScope(s.patterns())
	require.NoError(t, err)
	for title, url := range withAll(attempts, unreachable) {
		require.True(t, scope.Refusal(s.expand(url), "default") != "", "%s: a session is accepted", title)
	}
	for title, url := range anonymous {
		refusal := scope.Refusal(s.expand(url), "default")
		require.True(t, refusal == "", "%s: %s", title, refusal)
	}

	// The container gets the same URLs, as if the operator had not refused them, and repositories that lead to others.
	for title, url := range map[string]string{
		"submodule": "https://HOST/other/secret.git", "relative": "../../other/secret.git", "above": "https://HOST/team/x/../../other/secret.git",
		"redirected": "https://HOST/team/moved.git",
	} {
		s.addSubmodule(title, s.expand(url))
	}
	s.server.Fail(gitserver.Faults{Intercept: func(w http.ResponseWriter, r *http.Request) bool {
		name, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/team/"), "/")
		switch {
		case name == "moved.git" || name == "half.git" && rest == "git-upload-pack":
			http.Redirect(w, r, "/other/secret.git/"+rest+"?"+r.URL.RawQuery, http.StatusTemporaryRedirect)
		case name == "half.git":
			r.URL.Path = "/team/shop.git/" + rest
			return false
		case name == "dumb.git" && rest == "info/refs":
			fmt.Fprintf(w, "%s\trefs/heads/main\n", s.secret)
		case name == "dumb.git" && rest == "HEAD":
			fmt.Fprintln(w, "ref: refs/heads/main")
		case name == "dumb.git" && (rest == "objects/info/http-alternates" || rest == "objects/info/alternates"):
			fmt.Fprintln(w, "/other/secret.git/objects")
		case name == "dumb.git":
			http.NotFound(w, r)
		default:
			return false
		}
		return true
	}})
	repositories := []Repository{{URL: s.expand("https://HOST/team/shop.git"), Directory: "listed", AutoPush: true}}
	for title, url := range map[string]string{
		"a redirection of the server": "https://HOST/team/moved.git", "a redirection of one request": "https://HOST/team/half.git",
		"alternates of the server": "https://HOST/team/dumb.git",
	} {
		repositories = append(repositories, Repository{URL: s.expand(url), Directory: title})
	}
	for title, url := range withAll(attempts, anonymous) {
		repositories = append(repositories, Repository{URL: s.expand(url), Directory: title})
	}
	clones := s.run(repositories)
	for i := range clones {
		c := &clones[i]
		isListed := c.Directory == "listed"
		require.True(t, (c.Error == "") == isListed, "%s: error %q", c.Directory, c.Error)
		for _, m := range c.Submodules {
			require.True(t, m.Error != "", "the submodule %s is cloned", m.Name)
		}
		require.True(t, c.Directory != "listed" || len(c.Submodules) == 4, "submodules %+v", c.Submodules)
	}
	t.Logf("%d attempts at the container", len(clones)-1+len(clones[0].Submodules))
	for _, path := range s.server.Authorized() {
		require.True(t, strings.HasPrefix(path, "/team/") && !strings.Contains(path, ".."), "a request for %s had the credentials", path)
	}
	keys, _ := os.ReadFile(s.keys)
	require.True(t, len(keys) == 0, "SSH got the key: %s", keys)
	out, err := exec.CommandContext(t.Context(), "grep", "-rl", s.secret, s.directory).CombinedOutput()
	require.True(t, err != nil, "clones have the commit of the other repository: %s", out)
}

func withAll(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func TestListedRepositoriesGetTheCredentials(t *testing.T) {
	s := newScopeTest(t)
	scope, err := ParseScope(append(s.patterns(), "deploy@ADDRESS:2222/**", "git.example/a/*-web.git"))
	require.NoError(t, err)
	for _, url := range []string{
		"https://HOST/team/shop.git", "https://HOST/team/shop", "https://HOST/team/shop.git/", "HTTPS://HOST/team/a.b_c~d+e-f", "git@ADDRESS:team/shop.git",
		"ssh://git@ADDRESS/team/shop", "ssh://git@ADDRESS:22/team/shop", "https://GIT.example:443/a/big-web", "https://git.example/a/big-web.git/",
		"https://other.example/any/thing", "git@other.example:any/thing",
	} {
		refusal := scope.Refusal(s.expand(url), "default")
		require.True(t, refusal == "", "%s: %s", url, refusal)
	}
	refusal := scope.Refusal("https://git.example/b/c.git", "agents")
	want := "git.repositories of SessionRunner agents has only git.example/a/*-web.git of this host: add git.example/b/c there"
	require.True(t, refusal == want, "got  %s\nwant %s", refusal, want)
	s.server.Fail(gitserver.Faults{Intercept: func(w http.ResponseWriter, r *http.Request) bool {
		rest, isShort := strings.CutPrefix(r.URL.Path, "/team/shop/")
		if isShort {
			http.Redirect(w, r, "/team/shop.git/"+rest+"?"+r.URL.RawQuery, http.StatusMovedPermanently)
		}
		return isShort
	}})
	for _, c := range s.run([]Repository{
		{URL: s.expand("https://HOST/team/shop.git/"), Directory: "a"},
		{URL: s.expand("HTTPS://HOST/team/shop.git"), Directory: "b"},
		{URL: s.expand("https://HOST/team/shop"), Directory: "c"}, // the server redirects to a name with .git
	}) {
		require.True(t, c.Error == "", "%s: %s", c.Directory, c.Error)
	}
	s.run([]Repository{{URL: "git@127.0.0.1:team/shop.git", Directory: "d"}})
	keys, _ := os.ReadFile(s.keys)
	require.True(t, len(keys) != 0, "SSH did not get the key")
}

func TestPatternsThatAreNotPlainAreRefused(t *testing.T) {
	for _, text := range []string{
		"", "*", "github.com", "github.com/", "*/acme/shop", "*.example/a", "https://github.com/acme/*", "github.com/acme/../*", "github.com//acme",
		"github.com/acme/", "github.com/a%2eb", "github.com/**/a", "github.com/a**", "github.com/acme/?", "github.com:0/a", "github.com:443", "[::1]/a", "a b/c",
		"github.com/.git", "github.com/*/**/**",
	} {
		scope, err := ParseScope([]string{text})
		require.True(t, err != nil, "%q is accepted: %+v", text, scope)
	}
}

// scopeTest is a git server with the repositories team/shop.git and other/secret.git, and a container that has a password for it.
type scopeTest struct {
	t      *testing.T
	server *gitserver.Server
	// secret is a commit that only other/secret.git has. The directory has the clones.
	secret, directory string
	// keys is a file with the arguments of SSH that have a private key.
	keys string
}

func newScopeTest(t *testing.T) *scopeTest {
	t.Helper()
	files := t.TempDir()
	server, err := gitserver.New(t.Context(), files, "x-access-token", password)
	require.NoError(t, err)
	t.Cleanup(server.Close)
	t.Setenv("GIT_SSL_CAINFO", server.CAFile)
	require.NoError(t, server.AddRepository(t.Context(), "other/secret.git"))
	s := &scopeTest{t: t, server: server, keys: filepath.Join(t.TempDir(), "keys")}
	s.secret = s.shell(files+"/other/secret.git", "git rev-parse HEAD")
	programs := t.TempDir()
	const ssh = "#!/bin/sh\ncase \"$*\" in *ssh-privatekey*) echo \"$*\" >> %s;; esac\necho 'Permission denied' >&2; exit 255\n"
	require.NoError(t, os.WriteFile(filepath.Join(programs, "ssh"), fmt.Appendf(nil, ssh, s.keys), 0o700))
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	return s
}

func (s *scopeTest) patterns() []string { return []string{s.expand("HOST/team/*"), "127.0.0.1/team/*"} }

func (s *scopeTest) expand(text string) string {
	address, port, _ := strings.Cut(s.server.Host, ":")
	return strings.NewReplacer("HOST", s.server.Host, "ADDRESS", address, "PORT", port).Replace(text)
}

func (s *scopeTest) shell(directory, script string) string {
	s.t.Helper()
	command := exec.CommandContext(s.t.Context(), "sh", "-ec", script)
	command.Dir = directory
	out, err := command.CombinedOutput()
	require.True(s.t, err == nil, "%v: %s", err, out)
	return strings.TrimSpace(string(out))
}

// addSubmodule adds a submodule to team/shop.git, whose commit is that of the other repository.
func (s *scopeTest) addSubmodule(name, url string) {
	s.t.Helper()
	work := s.t.TempDir()
	s.shell(work, fmt.Sprintf(`git clone --quiet %[1]s . 
git config --file .gitmodules submodule.'%[2]s'.path '%[2]s'
git config --file .gitmodules submodule.'%[2]s'.url '%[3]s'
printf '[lfs]\n\turl = %[3]s\n' > .lfsconfig
git update-index --add --cacheinfo '160000,%[4]s,%[2]s'
git add .gitmodules .lfsconfig
git -c user.name=a -c user.email=a@b.example commit --quiet --message=Submodule
git push --quiet origin main`, s.server.Repository(), name, url, s.secret))
}

func (s *scopeTest) run(repositories []Repository) []Clone {
	s.t.Helper()
	s.directory = s.t.TempDir()
	credentials, inputs := s.t.TempDir(), filepath.Join(s.t.TempDir(), "session.json")
	raw, err := json.Marshal(map[string]any{"repos": repositories})
	require.NoError(s.t, err)
	for file, content := range map[string]string{inputs: string(raw), filepath.Join(credentials, "password"): password, filepath.Join(credentials, "ssh-privatekey"): "key"} {
		require.NoError(s.t, os.WriteFile(file, []byte(content), 0o600))
	}
	environment, log, ended := map[string]string{"AGENTIC_SESSION": "demo", "AGENTIC_SESSION_FILE": inputs}, &output.Buffer{}, make(chan error, 1)
	ctx, cancel := context.WithCancel(s.t.Context())
	go func() {
		ended <- Run(ctx, []string{
			"--directory", s.directory, "--credentials", credentials, "--repositories", strings.Join(s.patterns(), ","), "--forge", GitHub,
		}, func(name string) string { return environment[name] }, log)
	}()
	clones, err := NewClient(s.directory).Clones(s.t.Context())
	cancel()
	require.NoError(s.t, errors.Join(err, <-ended))
	require.True(s.t, len(clones) == len(repositories), "%d clones: %s", len(clones), log)
	require.True(s.t, !strings.Contains(fmt.Sprint(log, clones), password), "the log or a result contains the password: %s, %+v", log, clones)
	return clones
}

func TestGitGetsCredentialsOnlyForTheRepositoryOfTheCommand(t *testing.T) {
	directory := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(directory, "password"), []byte("secret\n"), 0o600))
	environment := map[string]string{grantVariable: "https://git.example:8443/team/shop.git", credentialsVariable: directory}
	for question, want := range map[string]string{
		"Username for 'https://git.example:8443/team/shop.git': ":                      "x-access-token",
		"Password for 'https://git.example:8443/team/shop.git': ":                      "secret",
		"Password for 'https://user@git.example:8443/team/shop.git': ":                 "secret",
		"Password for 'https://git.example:8443/team/other.git': ":                     "",
		"Password for 'https://git.example:8443/team/shop': ":                          "",
		"Password for 'https://git.example:8443': ":                                    "",
		"Password for 'https://git.example/team/shop.git': ":                           "",
		"Password for 'http://git.example:8443/team/shop.git': ":                       "",
		"Password for 'https://git.example:8443/team/shop.git@other.example': ":        "",
		"Password for 'https://git.example:8443/team/shop.git'@other.example': ":       "",
		"Password for 'https://git.example:8443/team/shop.git': @other.example': ":     "",
		"Password for 'https://other.example/@git.example:8443/team/shop.git/x.git': ": "",
		"Password for 'https://git.example:8443/team/shop.git":                         "",
		"Password for '': ": "",
		"":                  "",
	} {
		got, err := Askpass([]string{question}, func(name string) string { return environment[name] })
		require.True(t, got == want && (err == nil) == (want != ""), "%s: %q, %v; want %q", question, got, err, want)
		got, err = Askpass([]string{question}, func(name string) string { return map[string]string{credentialsVariable: directory}[name] })
		require.True(t, err != nil, "%s: %q for a command without credentials", question, got)
	}
}

func TestSuffixesOfBranchesAreAcceptedByTheServer(t *testing.T) {
	for branch, want := range map[string]string{
		"feature":                "feature",
		"feature/one":            "feature-one",
		"fix_#12@{x}..lock":      "fix-12-x-lock",
		"-ünïcode-":              "n-code",
		strings.Repeat("a/", 80): strings.TrimSuffix(strings.Repeat("a-", 50), "-"),
	} {
		got := SuffixOf(branch)
		require.True(t, got == want && branchSuffix.MatchString(got) && len(got) <= maxBranchSuffix, "SuffixOf(%q) = %q, want %q", branch, got, want)
	}
	for _, suffix := range []string{"", "-", "a-", "-a", "a/b", "..", "a.lock", "a b", "a\n", "@{u}"} {
		require.True(t, !branchSuffix.MatchString(suffix), "the suffix %q is accepted", suffix)
	}
}

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
			answersInvalid: http.StatusUnprocessableEntity, answersError: http.StatusInternalServerError, faults.StartsLate: http.StatusServiceUnavailable,
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
