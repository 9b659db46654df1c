package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
	_, err := r.git(ctx, target, "checkout", "--quiet", "--no-track", "-B", branch, start)
	return err
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
	var err error
	if repo.AutoPush {
		if err := r.commit(ctx, directory, summary); err != nil {
			return err
		}
	}
	if result.Commit, err = r.git(ctx, directory, "rev-parse", "HEAD"); err != nil {
		return err
	}
	if !repo.AutoPush {
		result.Branch, err = r.git(ctx, directory, "rev-parse", "--abbrev-ref", "HEAD")
		return err
	}
	ahead, err := r.git(ctx, directory, "rev-list", "--count", "HEAD", "--not", "--remotes=origin")
	if err != nil || ahead == "0" {
		return err // nothing to push
	}
	push, err := r.sendBundle(ctx, directory, repo, "HEAD", "--not", "--remotes=origin")
	if err == nil && push.Incomplete {
		push, err = r.sendBundle(ctx, directory, repo, "HEAD")
	}
	if err != nil {
		return err
	}
	result.Branch, result.Pushed, result.PullRequestURL = push.Branch, push.Pushed, push.PullRequestURL
	if push.Error != "" {
		return errors.New(push.Error)
	}
	return nil
}

// commit commits all changes that are not ignored.
func (r *repositories) commit(ctx context.Context, directory, summary string) error {
	if _, err := r.git(ctx, directory, "add", "--all"); err != nil {
		return err
	}
	if status, err := r.git(ctx, directory, "status", "--porcelain", "--untracked-files=no"); err != nil || status == "" {
		return err
	}
	_, err := r.git(ctx, directory, "commit", "--quiet", "--no-verify", "--message", commitMessage(r.inputs.name, summary))
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
func (r *repositories) sendBundle(ctx context.Context, directory string, repo *sessiongit.Repository, revisions ...string) (sessiongit.Push, error) {
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
	push, err := r.client.Push(ctx, repo.Directory, reader)
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
			command.Env = append(command.Env, "GIT_"+role+"_NAME=Agent session "+r.inputs.name)
		}
		if os.Getenv("GIT_"+role+"_EMAIL") == "" {
			command.Env = append(command.Env, "GIT_"+role+"_EMAIL="+r.inputs.name+"@"+r.inputs.namespace+".sessions.invalid")
		}
	}
	return command
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
