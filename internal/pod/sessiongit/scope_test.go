package sessiongit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
