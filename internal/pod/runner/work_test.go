package runner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/gitserver"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
)

// endings of an agent: what its script does last.
var endings = map[string]string{
	"completes":           finished,
	"fails":               `exit 3`,
	"crashes":             `kill -SEGV $$`,
	"never exits":         finished + `exec sleep 1000`,
	"is terminated":       `exec sleep 1000`,
	"leaves a process":    finished + `setsid sh -c 'trap "" TERM; while :; do date +%N > noise.txt; sleep 0.05; done' & sleep 0.1`,
	"removes its history": finished + `rm -rf .git`,
}

// gitStates are the states in which the agent leaves the file work.txt with the text workText.
var gitStates = map[string]string{
	"changes":            ``,
	"a commit":           `git add --all; git commit -q -m Work`,
	"another branch":     `git checkout -q -b other; git add --all; git commit -q -m Work; git checkout -q -`,
	"a detached HEAD":    `git checkout -q --detach; git add --all; git commit -q -m Work`,
	"a lock":             `touch .git/index.lock .git/HEAD.lock .git/refs/heads/session/x.lock`,
	"a stash":            `git stash push -q --include-untracked`,
	"a working tree":     `git worktree add -q --detach tree; mv work.txt tree`,
	"a merge":            `git add --all; git commit -q -m Work; git checkout -q -b other HEAD~; echo other > work.txt; git add --all; git commit -q -m Other; git checkout -q -; git merge -q other || true`,
	"markers":            `printf '<<<<<<< ours\n%s\n=======\nother\n>>>>>>> theirs\n' "$(cat work.txt)" > work.txt; git add --all; git commit -q -m Work`,
	"a nested clone":     `mkdir gen; mv work.txt gen; cd gen; git init -q; git add --all; git commit -q -m Inner; cd ..`,
	"a committed link":   `mkdir gen; mv work.txt gen; cd gen; git init -q; git add --all; git commit -q -m Inner; cd ..; git add --all 2>/dev/null; git commit -q -m Work`,
	"a file without use": `mkdir denied; touch denied/file; chmod 000 denied/file`,
	"a rebase":           `git add --all; git commit -q -m Work; git checkout -q -b other HEAD~; echo other > work.txt; git add --all; git commit -q -m Other; git rebase -q - >/dev/null 2>&1 || true`,
}

// servers are what happens to the server while the agent works.
var servers = map[string]func(t *testing.T, s *gitserver.Server){
	"works":              func(*testing.T, *gitserver.Server) {},
	"loses its client":   func(*testing.T, *gitserver.Server) {}, // the container with the credentials is killed, and started again
	"is slow":            func(_ *testing.T, s *gitserver.Server) { s.Fail(gitserver.Faults{Delay: 700 * time.Millisecond}) },
	"fails twice":        func(_ *testing.T, s *gitserver.Server) { s.Fail(gitserver.Faults{Pushes: 2}) },
	"never answers":      func(_ *testing.T, s *gitserver.Server) { s.Fail(gitserver.Faults{Delay: time.Hour}) },
	"is away":            func(_ *testing.T, s *gitserver.Server) { s.Close() },
	"refuses all pushes": func(t *testing.T, s *gitserver.Server) { t.Helper(); setHook(t, s, "exit 1") },
	"has other commits": func(t *testing.T, s *gitserver.Server) {
		t.Helper()
		script := `git update-ref refs/heads/session/demo $(git -c user.name=o -c user.email=o@b.example commit-tree -p main -m Other main^{tree})`
		command := exec.CommandContext(t.Context(), "sh", "-ec", script)
		command.Dir = s.Repository()
		out, err := command.CombinedOutput()
		require.True(t, err == nil, "%v: %s", err, out)
	},
	"protects the branch": func(t *testing.T, s *gitserver.Server) {
		t.Helper()
		setHook(t, s, `while read -r old new name; do test "$name" != refs/heads/session/demo || exit 1; done`)
	},
}

func setHook(t *testing.T, s *gitserver.Server, script string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(s.Repository(), "hooks", "pre-receive"), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
}

// isSkipped leaves out all but one of 64 cells, other ones in each run, or of WORK_INTERVAL.
func isSkipped() bool {
	const interval = 64
	configured, err := strconv.Atoi(os.Getenv("WORK_INTERVAL"))
	if err != nil {
		configured = interval
	}
	return rand.IntN(configured) != 0
}

const workText = "the work of the agent"

// place is where work can be.
type place string

const (
	onServer    place = "on the server"
	inArchive   place = "in the archive"
	inWorkspace place = "in the workspace"
)

// expectedPlace is the promise: work is on the server, else in the archive, and without one in the workspace.
func expectedPlace(server string, hasArchive bool) place {
	switch server {
	case "never answers", "is away", "refuses all pushes":
		if hasArchive {
			return inArchive
		}
		return inWorkspace
	}
	return onServer
}

// Whatever an agent does at its end, in whatever state it leaves its repository, and whatever the server does: the work is on the
// server, in the archive or in the workspace, and the result says where.
func TestWorkIsNeverLostSilently(t *testing.T) {
	program, number := buildRunner(t), 0
	for ending := range endings {
		for state := range gitStates {
			for server := range servers {
				if ending == "removes its history" && state != "changes" && state != "a lock" && state != "a file without use" {
					continue // the agent itself removed the work
				}
				number++
				if isSkipped() {
					continue
				}
				hasArchive := number%3 != 0
				t.Run(fmt.Sprintf("the agent %s with %s, the server %s, archive %v", ending, state, server, hasArchive), func(t *testing.T) {
					t.Parallel()
					got, found, text := endSession(t, program, ending, state, server, hasArchive, 0)
					want := expectedPlace(server, hasArchive)
					require.True(t, found == want, "the work is %q, want %q: %s", found, want, text)
					isUnfinished := state == "a merge" || state == "markers" || state == "a rebase" || state == "a file without use" && os.Geteuid() != 0
					arrived := want == onServer && !isUnfinished
					require.True(t, got.Pushed == arrived && arrived == (got.Error == ""), "all work arrived is %v: %s", arrived, text)
				})
			}
		}
	}
}

// A command of git that does not end by itself, as at a limit of memory, says nothing about the work.
func TestWorkIsNeverLostSilentlyIfAnyCommandOfGitIsKilled(t *testing.T) {
	const commands = 30 // more than the runner needs
	program, number := buildRunner(t), 0
	for _, state := range []string{"changes", "a commit", "another branch", "a stash", "a working tree", "a nested clone", "a committed link"} {
		for killed := range commands {
			number++
			if isSkipped() {
				continue
			}
			t.Run(fmt.Sprintf("the agent completes with %s, command %d of the runner is killed", state, killed+1), func(t *testing.T) {
				t.Parallel()
				got, found, text := endSession(t, program, "completes", state, "works", number%2 == 0, killed+1)
				require.True(t, found != "lost" && (!got.Pushed || found == onServer) && (got.Pushed || got.Error != ""),
					"the work is %q: %s", found, text)
			})
		}
	}
}

// buildRunner returns the path of the program, which is linked once for all tests.
func buildRunner(t *testing.T) string {
	t.Helper()
	linkRunner.Do(func() {
		command := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", testDirectory, "../../../cmd/session-runner")
		out, err := command.CombinedOutput()
		require.True(t, err == nil, "%v: %s", err, out)
	})
	return filepath.Join(testDirectory, "session-runner")
}

var linkRunner sync.Once

// killingGit is a git that is killed if it is the command number $KILLED of the runner after the agent's work.
const killingGit = `#!/bin/sh
case "$PWD" in "$AGENTIC_WORKSPACE"/*)
	if test -e "$SIGNALS/go"; then
		echo >> "$SIGNALS/commands"
		test "$(wc -l < "$SIGNALS/commands")" != "$KILLED" || kill -KILL $$
	fi ;;
esac
exec "$GIT" "$@"
`

// endSession runs a session to its end, and returns its result, the place of the work, and what explains them. With killed, the git
// command of this number that the runner starts after the agent's end is killed.
//
//nolint:thelper // it is the test
func endSession(t *testing.T, program, ending, state, server string, hasArchive bool, killed int) (v1alpha1.SessionRepositoryResult, place, string) {
	ctx := t.Context()
	git, err := gitserver.New(ctx, t.TempDir(), "x-access-token", gitPassword)
	require.NoError(t, err)
	t.Cleanup(git.Close)
	source := v1alpha1.GitSource{URL: v1alpha1.GitURL(git.CloneURL())}
	s := newTestSession(t, "Fix it.").setRepository(&v1alpha1.SessionRepo{GitSource: source, AutoPush: true})
	credentials, claim, signals := t.TempDir(), t.TempDir(), t.TempDir()
	writeTestFile(t, filepath.Join(credentials, "password"), gitPassword)
	s.set(map[string]string{
		"AGENTIC_GIT": t.TempDir(), "GIT_SSL_CAINFO": git.CAFile, "PATH": os.Getenv("PATH"), "TMPDIR": t.TempDir(), "SIGNALS": signals,
	})
	if killed > 0 {
		directory := t.TempDir()
		path, err := exec.LookPath("git")
		if err == nil {
			err = os.WriteFile(filepath.Join(directory, "git"), []byte(killingGit), 0o700)
		}
		require.NoError(t, err)
		s.set(map[string]string{"PATH": directory + ":" + os.Getenv("PATH"), "GIT": path, "KILLED": strconv.Itoa(killed)})
	}
	containers := [][]string{{"git", "--directory", s.environment["AGENTIC_GIT"], "--credentials", credentials, "--repositories", git.Host + "/team/*"}}
	if hasArchive {
		s.set(map[string]string{"AGENTIC_ARCHIVE": t.TempDir()})
		containers = append(containers, []string{"archive", "--directory", s.environment["AGENTIC_ARCHIVE"], "--claim", claim})
	}
	startContainer := func(args []string) *exec.Cmd {
		container := s.start(ctx, program, args, s.out)
		t.Cleanup(func() { _ = container.Process.Signal(os.Interrupt); _ = container.Wait() })
		return container
	}
	var running []*exec.Cmd
	for _, args := range containers {
		running = append(running, startContainer(args))
	}
	limit := "1m"
	if expectedPlace(server, hasArchive) != onServer {
		limit = "2s"
	}
	script := "echo '" + workText + "' > work.txt\n" + gitStates[state] + "\ntouch $SIGNALS/ready; until test -e $SIGNALS/go; do sleep 0.02; done\nset +e\n" + endings[ending]
	runner := s.start(ctx, program, []string{
		"--profile", "events", "--grace-period", "1s", "--push-grace-period", "1m", "--push-timeout", limit, "--exit-delay", "5s", "--", "sh", "-ec", script,
	}, s.out)
	ended := make(chan error, 1)
	go func() { ended <- runner.Wait() }() // with the code of the agent
	poll.Until(t, "the agent to work", func() bool {
		_, err := os.Stat(filepath.Join(signals, "ready"))
		return err == nil || len(ended) > 0
	})
	servers[server](t, git)
	if server == "loses its client" {
		_ = running[0].Process.Kill()
		startContainer(containers[0])
	}
	writeTestFile(t, filepath.Join(signals, "go"), "")
	if ending == "is terminated" {
		_ = runner.Process.Signal(os.Interrupt)
	}
	<-ended
	got := s.result().Repositories
	require.True(t, len(got) == 1, "result %+v: %s", got, s.out)
	for ref := range strings.FieldsSeq(mustGit(ctx, t, git.Repository(), "for-each-ref", "--format=%(refname)", "refs/heads")) {
		links := mustGit(ctx, t, git.Repository(), "ls-tree", "-r", ref)
		markers, _ := exec.CommandContext(ctx, "git", "-C", git.Repository(), "grep", "-l", "^<<<<<<< ", ref).Output()
		require.True(t, (killed != 0 || !strings.Contains(links, "160000 commit")) && (len(markers) == 0 || strings.Contains(ref, "unfinished")),
			"%s has links %s, and markers in %s", ref, links, markers)
	}
	return got[0], findWork(t, git, claim, s.environment["AGENTIC_WORKSPACE"], &got[0]), fmt.Sprintf("%+v: %s", got[0], s.out)
}

// findWork returns where the work is, according to the result.
func findWork(t *testing.T, server *gitserver.Server, claim, workspace string, result *v1alpha1.SessionRepositoryResult) place {
	t.Helper()
	ctx := t.Context()
	contains := func(repository, pattern string) bool {
		for ref := range strings.FieldsSeq(mustGit(ctx, t, repository, "for-each-ref", "--format=%(refname)", pattern)) {
			// A stash has files that were not known to git in a parent.
			for _, revision := range []string{ref, ref + "^3"} {
				if exec.CommandContext(ctx, "git", "-C", repository, "grep", "-q", workText, revision).Run() == nil {
					return true
				}
			}
		}
		return false
	}
	if contains(server.Repository(), "refs/heads") {
		return onServer
	}
	if _, rest, found := strings.Cut(result.Error, "the commits are in the archive, "); found {
		location, _, _ := strings.Cut(rest, ": ")
		mustGit(ctx, t, server.Repository(), "fetch", "--quiet", filepath.Join(claim, location), "+refs/*:refs/check/*")
		if contains(server.Repository(), "refs/check") {
			return inArchive
		}
	}
	if exec.CommandContext(ctx, "grep", "-rq", workText, workspace).Run() == nil || contains(filepath.Join(workspace, "shop"), "refs") {
		return inWorkspace
	}
	return "lost"
}

func mustGit(ctx context.Context, t *testing.T, directory string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", directory}, args...)...).CombinedOutput()
	require.True(t, err == nil, "git %v: %v: %s", args, err, out)
	return string(out)
}
