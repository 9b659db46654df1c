package runner

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/sessiongit"
)

// pushTimeout bounds a push before SIGTERM: servers scan pushed commits.
const pushTimeout = 5 * time.Minute

// repositories are the session's repositories in the workspace. Git runs here without credentials.
type repositories struct {
	inputs *inputs
	client *sessiongit.Client
	logf   func(format string, arguments ...any)
	// grace bounds a push after SIGTERM.
	grace time.Duration
}

// prepare creates working trees of the clones. Working trees of earlier attempts stay unchanged: they contain work.
func (r *repositories) prepare(ctx context.Context) error {
	clones, err := r.client.Clones(ctx)
	if err != nil {
		return fmt.Errorf("waiting for the repositories: %w", err)
	}
	for i := range clones {
		c := &clones[i]
		if c.Error != "" {
			return fmt.Errorf("cloning %s: %s", c.Directory, c.Error)
		}
		target, repo := r.target(c.Directory)
		if err := r.checkOut(ctx, c.Path, target, repo); err != nil {
			return fmt.Errorf("checking out %s: %w", c.Directory, err)
		}
	}
	return nil
}

// target returns the directory of a clone in the workspace, and its repository; nil for a workflow.
func (r *repositories) target(directory string) (string, *sessiongit.Repository) {
	for i := range r.inputs.file.Repos {
		if repo := &r.inputs.file.Repos[i]; repo.Directory == directory {
			return filepath.Join(r.inputs.workspace, directory), repo
		}
	}
	return filepath.Join(r.inputs.workspace, stateDirectory, "workflow"), nil
}

func (r *repositories) checkOut(ctx context.Context, clone, target string, repo *sessiongit.Repository) error {
	if _, err := os.Stat(filepath.Join(target, ".git")); err == nil {
		r.logf("%s is in the workspace already", target)
		return nil
	}
	if repo == nil {
		_, err := r.git(ctx, "", "clone", "--quiet", "--", clone, target)
		return err
	}
	if _, err := r.git(ctx, "", "clone", "--quiet", "--no-checkout", "--", clone, target); err != nil {
		return err
	}
	if _, err := r.git(ctx, target, "remote", "set-url", "origin", repo.URL); err != nil {
		return err
	}
	branch, start := repo.Branch, "origin/"+repo.Branch
	if repo.AutoPush {
		branch = sessiongit.BranchOf(r.inputs.name)
		// An earlier attempt may have pushed, and lost its workspace.
		if _, err := r.git(ctx, target, "rev-parse", "--verify", "--quiet", "refs/remotes/origin/"+branch); err == nil {
			start = "origin/" + branch
			r.logf("%s continues with the commits of %s", repo.Directory, branch)
		}
	}
	if _, err := r.git(ctx, target, "checkout", "--quiet", "--no-track", "-B", branch, start); err != nil {
		return err
	}
	if submodules, err := r.git(ctx, target, "config", "--file", ".gitmodules", "--get-regexp", `[.]path$`); err == nil {
		r.logf("%s has submodules, which are not fetched: %s", repo.Directory, paths(submodules))
	}
	// Without an identity, the agent's own commits would fail.
	for key, value := range map[string]string{"user.name": r.author(), "user.email": r.email()} {
		if configured, _ := r.git(ctx, target, "config", key); configured != "" {
			continue
		}
		if _, err := r.git(ctx, target, "config", key, value); err != nil {
			return err
		}
	}
	return nil
}

// paths returns the values in the output of git config --get-regexp.
func paths(lines string) string {
	var values []string
	for line := range strings.Lines(lines) {
		_, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		values = append(values, value)
	}
	return strings.Join(values, ", ")
}

// push commits the agent's changes, and pushes all commits.
func (r *repositories) push(ctx context.Context, summary string) []repositoryResult {
	// The runner's context ends with SIGTERM. Pushing may take longer, by the grace period.
	pushing, cancel := context.WithTimeout(context.WithoutCancel(ctx), pushTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(r.grace, cancel) })()
	var results []repositoryResult
	for i := range r.inputs.file.Repos {
		repo := &r.inputs.file.Repos[i]
		result := repositoryResult{Name: repo.Directory}
		if err := r.pushOne(pushing, repo, summary, &result); err != nil {
			result.Error = err.Error()
			r.logf("Pushing %s: %s", repo.Directory, err)
		}
		results = append(results, result)
	}
	return results
}

func (r *repositories) pushOne(ctx context.Context, repo *sessiongit.Repository, summary string, result *repositoryResult) error {
	directory, _ := r.target(repo.Directory)
	if _, err := os.Stat(filepath.Join(directory, ".git")); err != nil {
		return err
	}
	var notCommitted, err error
	if repo.AutoPush {
		notCommitted = r.commit(ctx, directory, summary) // earlier commits are pushed nevertheless
	}
	if result.Commit, err = r.git(ctx, directory, "rev-parse", "HEAD"); err != nil {
		return errors.Join(notCommitted, err)
	}
	if !repo.AutoPush {
		result.Branch, err = r.git(ctx, directory, "rev-parse", "--abbrev-ref", "HEAD")
		return err
	}
	unpushed, err := r.unpushed(ctx, directory)
	if err != nil {
		return errors.Join(notCommitted, err)
	}
	errs := []error{notCommitted}
	for i, revision := range unpushed {
		suffix := ""
		if i > 0 {
			suffix = sessiongit.SuffixOf(strings.TrimPrefix(revision, branchPrefix))
		}
		push, err := r.sendBundle(ctx, directory, repo, suffix, revision, "--not", "--remotes=origin")
		if err == nil && push.Incomplete {
			push, err = r.sendBundle(ctx, directory, repo, suffix, revision)
		}
		if err == nil && push.Error != "" {
			err = errors.New(push.Error)
		}
		if push.Pushed {
			r.logf("%s of %s was pushed to the branch %s", strings.TrimPrefix(revision, branchPrefix), repo.Directory, push.Branch)
		}
		if err != nil && i > 0 {
			err = fmt.Errorf("%s: %w", strings.TrimPrefix(revision, branchPrefix), err)
		}
		if i == 0 {
			result.Branch, result.Commit, result.Pushed, result.PullRequestURL = push.Branch, cmp.Or(push.Commit, result.Commit), push.Pushed, push.PullRequestURL
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// branchPrefix begins the references of local branches.
const branchPrefix = "refs/heads/"

// unpushed returns the revisions with commits that the server lacks: HEAD first if it has one, then local branches with commits of
// their own. If only other branches have commits, the first of them has the work of the session.
func (r *repositories) unpushed(ctx context.Context, directory string) ([]string, error) {
	branches, err := r.git(ctx, directory, "for-each-ref", "--format=%(refname)", branchPrefix)
	if err != nil {
		return nil, err
	}
	var unpushed []string
	for _, revision := range append([]string{"HEAD"}, strings.Fields(branches)...) {
		ahead, err := r.git(ctx, directory, append([]string{"rev-list", "--count", revision, "--not", "--remotes=origin"}, unpushed...)...)
		if err != nil {
			return nil, err
		}
		if ahead != "0" {
			unpushed = append(unpushed, revision)
		}
	}
	return unpushed, nil
}

// commit commits all changes that are not ignored. It refuses a merge with conflicts: their markers are no work.
func (r *repositories) commit(ctx context.Context, directory, summary string) error {
	// All processes of the agent have ended, so locks are those of a git that was killed.
	for _, lock := range []string{"index.lock", "HEAD.lock", "config.lock", "packed-refs.lock"} {
		if err := os.Remove(filepath.Join(directory, ".git", lock)); err == nil {
			r.logf("The lock %s of a git command that was killed was removed", lock)
		}
	}
	conflicts, err := r.git(ctx, directory, "diff", "--name-only", "--diff-filter=U")
	if err != nil {
		return err
	}
	if conflicts != "" {
		return fmt.Errorf("changes were not committed, because a merge has conflicts in %s", strings.Join(strings.Fields(conflicts), ", "))
	}
	if err := r.stage(ctx, directory); err != nil {
		return err
	}
	if status, err := r.git(ctx, directory, "status", "--porcelain", "--untracked-files=no"); err != nil || status == "" {
		return err
	}
	_, err = r.git(ctx, directory, "commit", "--quiet", "--no-verify", "--message", commitMessage(r.inputs.name, summary))
	return err
}

// stage adds all changes to the index. It adds the files of repositories that the agent created inside: git would add a link to a
// commit that exists nowhere else.
func (r *repositories) stage(ctx context.Context, directory string) error {
	hidden, nested := filepath.Join(directory, ".git", "nested"), []string(nil)
	aside := func(i int) string { return filepath.Join(hidden, strconv.Itoa(i)) }
	defer func() { // for the next attempt in this workspace
		for i, repository := range nested {
			if err := os.Rename(aside(i), repository); err != nil {
				r.logf("Restoring the nested repository %s: %s", filepath.Dir(repository), err)
			}
		}
	}()
	for isComplete := false; !isComplete; { // a repository inside can have others inside
		untracked, err := r.git(ctx, directory, "ls-files", "-z", "--others", "--exclude-standard")
		if err != nil {
			return err
		}
		isComplete = true
		for name := range strings.SplitSeq(untracked, "\x00") {
			if !strings.HasSuffix(name, "/") {
				continue
			}
			repository := filepath.Join(directory, name, ".git")
			if err := errors.Join(os.MkdirAll(hidden, directoryMode), os.Rename(repository, aside(len(nested)))); err != nil {
				return fmt.Errorf("moving a nested repository aside: %w", err)
			}
			nested, isComplete = append(nested, repository), false
			r.logf("%s is a nested repository: its files are committed, and its own commits are not", name)
		}
	}
	_, err := r.git(ctx, directory, "add", "--all")
	return err
}

// commitMessage returns a message whose subject is the first line of the agent's answer, if it is short enough.
func commitMessage(session, summary string) string {
	const maxSubject, maxBody = 72, 2000
	subject, _, _ := strings.Cut(strings.TrimSpace(summary), "\n")
	if subject == "" || len(subject) > maxSubject {
		subject = "Work of the agent session " + session
	}
	return subject + "\n\n" + cut(strings.TrimSpace(summary), maxBody) + "\n\nAgent-Session: " + session + "\n"
}

// sendBundle sends commits to the container with the credentials.
func (r *repositories) sendBundle(
	ctx context.Context, directory string, repo *sessiongit.Repository, suffix string, revisions ...string,
) (sessiongit.Push, error) {
	reader, writer := io.Pipe()
	command := r.command(ctx, directory, append([]string{"bundle", "create", "--quiet", "-"}, revisions...)...)
	errOutput := &bytes.Buffer{}
	command.Stdout, command.Stderr = writer, errOutput
	go func() {
		err := command.Run()
		if err != nil {
			err = fmt.Errorf("git bundle: %w: %s", err, strings.TrimSpace(errOutput.String()))
		}
		_ = writer.CloseWithError(err)
	}()
	push, err := r.client.Push(ctx, repo.Directory, suffix, reader)
	_ = reader.CloseWithError(err)
	return push, err
}

// command returns a git command in the container of the agent. The SessionRunner's env can set its identity.
func (r *repositories) command(ctx context.Context, directory string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "git", append([]string{"-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*", "-c", "gc.auto=0"}, args...)...)
	command.Dir = directory
	command.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
	for _, role := range []string{"AUTHOR", "COMMITTER"} {
		if os.Getenv("GIT_"+role+"_NAME") == "" {
			command.Env = append(command.Env, "GIT_"+role+"_NAME="+r.author())
		}
		if os.Getenv("GIT_"+role+"_EMAIL") == "" {
			command.Env = append(command.Env, "GIT_"+role+"_EMAIL="+r.email())
		}
	}
	return command
}

// author and email are the identity of commits where nobody configured another.
func (r *repositories) author() string { return "Agent session " + r.inputs.name }

func (r *repositories) email() string {
	return r.inputs.name + "@" + r.inputs.namespace + ".sessions.invalid"
}

func (r *repositories) git(ctx context.Context, directory string, args ...string) (string, error) {
	command := r.command(ctx, directory, args...)
	errOutput := &bytes.Buffer{}
	command.Stderr = errOutput
	output, err := command.Output()
	if err != nil {
		const maxErrorBytes = 512
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, cut(strings.TrimSpace(errOutput.String()), maxErrorBytes))
	}
	return strings.TrimSpace(string(output)), nil
}
