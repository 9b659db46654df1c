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
	"strings"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/sessiongit"
)

// repositories are the session's repositories in the workspace. Git runs here without credentials.
type repositories struct {
	inputs *inputs
	client *sessiongit.Client
	logf   func(format string, arguments ...any)
	// timeout bounds the push of a repository.
	timeout time.Duration
	// archive stores a file; it fails if the SessionRunner has no archive.
	archive func(name string, from io.Reader) error

	// clones are those of the container with the credentials, by directory.
	clones map[string]*sessiongit.Clone
}

// prepare creates working trees of the clones. Working trees of earlier attempts stay unchanged: they contain work.
func (r *repositories) prepare(ctx context.Context) error {
	clones, err := r.client.Clones(ctx)
	if err != nil {
		return fmt.Errorf("waiting for the repositories: %w", err)
	}
	if err := r.setIdentity(ctx); err != nil {
		return fmt.Errorf("setting the identity of commits: %w", err)
	}
	r.clones = map[string]*sessiongit.Clone{}
	for i := range clones {
		c := &clones[i]
		if c.Error != "" {
			return fmt.Errorf("cloning %s: %s", c.Directory, oneLine(c.Error))
		}
		target, repo := r.target(c.Directory)
		if repo != nil {
			c.Branch = cmp.Or(c.Branch, repo.Branch) // a container of another image may be older
		}
		if err := r.checkOut(ctx, c, target, repo); err != nil {
			return fmt.Errorf("checking out %s: %w", c.Directory, err)
		}
		r.clones[c.Directory] = c
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

func (r *repositories) checkOut(ctx context.Context, clone *sessiongit.Clone, target string, repo *sessiongit.Repository) error {
	if _, err := os.Stat(filepath.Join(target, ".git")); err == nil {
		r.logf("%s is in the workspace already", target)
		return nil
	}
	if repo == nil {
		args := []string{"clone", "--quiet"}
		if clone.Branch != "" {
			args = append(args, "--branch", clone.Branch)
		}
		_, err := r.git(ctx, "", append(args, "--", clone.Path, target)...)
		return err
	}
	if _, err := r.git(ctx, "", "clone", "--quiet", "--no-checkout", "--", clone.Path, target); err != nil {
		return err
	}
	if err := r.configure(ctx, target, repo); err != nil {
		return err
	}
	branch, start := r.branches(ctx, target, repo, clone)
	if start == "" { // an empty repository
		_, err := r.git(ctx, target, "symbolic-ref", "HEAD", branchPrefix+branch)
		return err
	}
	if _, err := r.git(ctx, target, "checkout", "--quiet", "--no-track", "-B", branch, start); err != nil {
		return err
	}
	r.checkOutSubmodules(ctx, target, clone.Submodules)
	return nil
}

// configure sets the URL of the server, and an identity, without which the agent's own commits would fail.
func (r *repositories) configure(ctx context.Context, target string, repo *sessiongit.Repository) error {
	if _, err := r.git(ctx, target, "remote", "set-url", "origin", repo.URL); err != nil {
		return err
	}
	return r.configureIdentity(ctx, target, filepath.Join(target, ".git", "config"))
}

// setIdentity sets the identity for all other repositories that the agent creates or clones.
func (r *repositories) setIdentity(ctx context.Context) error {
	return r.configureIdentity(ctx, r.inputs.home, filepath.Join(r.inputs.home, ".gitconfig"))
}

func (r *repositories) configureIdentity(ctx context.Context, directory, file string) error {
	for key, value := range map[string]string{"user.name": r.author(), "user.email": r.email()} {
		if configured, _ := r.git(ctx, directory, "config", key); configured != "" {
			continue
		}
		if _, err := r.git(ctx, directory, "config", "--file", file, key, value); err != nil {
			return err
		}
	}
	return nil
}

// branches returns the branch that the agent works on, and the revision at which it begins; an empty revision in an empty repository.
// A session begins at its base, whatever the server has in its branch: another session may have had its name. Later attempts and runs
// of the session continue with what it pushed, as their workspace may be another one.
func (r *repositories) branches(ctx context.Context, target string, repo *sessiongit.Repository, clone *sessiongit.Clone) (branch, start string) {
	has := func(branch string) bool {
		_, err := r.git(ctx, target, "rev-parse", "--verify", "--quiet", "refs/remotes/origin/"+branch)
		return err == nil
	}
	branch, start = clone.Branch, "origin/"+clone.Branch
	if !has(branch) {
		start = ""
	}
	if repo.AutoPush {
		branch = repo.PushBranch(r.inputs.name)
		if (r.inputs.run > 1 || r.inputs.attempt > 1) && has(branch) {
			start = "origin/" + branch
			r.logf("%s continues with the commits of %s", repo.Directory, branch)
		}
	}
	return branch, start
}

// checkOutSubmodules fills the directories of submodules. A submodule that is missing is reported, and does not end the session.
func (r *repositories) checkOutSubmodules(ctx context.Context, target string, submodules []sessiongit.Submodule) {
	for i := range submodules {
		m := &submodules[i]
		err := errors.New(m.Error)
		if m.Error == "" {
			err = r.checkOutSubmodule(ctx, target, m)
		}
		if err != nil {
			r.logf("The submodule %s was not fetched: %s", m.Directory, err)
			continue
		}
		r.checkOutSubmodules(ctx, filepath.Join(target, m.Directory), m.Submodules)
	}
}

func (r *repositories) checkOutSubmodule(ctx context.Context, target string, m *sessiongit.Submodule) error {
	key, directory := "submodule."+m.Name+".url", filepath.Join(target, m.Directory)
	for _, args := range [][]string{
		{"config", key, m.Path},
		{"-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init", "--checkout", "--", m.Directory},
		{"config", key, m.URL},
		{"-C", directory, "remote", "set-url", "origin", m.URL},
		{"-C", directory, "update-ref", "refs/remotes/origin/agentic-base", "HEAD"}, // maybe no branch contains it
	} {
		if _, err := r.git(ctx, target, args...); err != nil {
			return err
		}
	}
	return nil
}

// command returns a git command in the container of the agent. The SessionRunner's env can set its identity.
func (r *repositories) command(ctx context.Context, directory string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "git", append([]string{
		"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "safe.directory=*", "-c", "gc.auto=0", "-c", "commit.gpgSign=false",
	}, args...)...)
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
	return r.gitWith(ctx, directory, nil, args...)
}

// gitWith runs git with further variables.
func (r *repositories) gitWith(ctx context.Context, directory string, environment []string, args ...string) (string, error) {
	command := r.command(ctx, directory, args...)
	command.Env = append(command.Env, environment...)
	errOutput := &bytes.Buffer{}
	command.Stderr = errOutput
	output, err := command.Output()
	if err != nil {
		const maxErrorBytes = 512
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, cut(strings.TrimSpace(errOutput.String()), maxErrorBytes))
	}
	return strings.TrimSpace(string(output)), nil
}
