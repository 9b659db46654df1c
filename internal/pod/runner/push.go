package runner

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/sessiongit"
)

const (
	// branchPrefix begins the references of local branches, basePrefix those of the branches of the server, and workPrefix those of
	// what is pushed.
	branchPrefix = "refs/heads/"
	basePrefix   = "refs/agentic/base/"
	workPrefix   = "refs/agentic/work/"
	// unfinishedSuffix ends the branch with what must not be in the branch of the session, such as conflicts.
	unfinishedSuffix = "unfinished"
	stashName        = "stash"
	// localTimeout bounds what needs no server: the commit of all work, and the copy of what could not be pushed into the archive.
	localTimeout = 5 * time.Minute
	// containerAttempts and containerDelay are how often, and after which time, a push is repeated whose container ended.
	containerAttempts = 3
	containerDelay    = 2 * time.Second
)

// push commits the agent's work in all repositories at the same time, and pushes it. What cannot be pushed goes to the archive.
func (r *repositories) push(ctx context.Context, summary string) []repositoryResult {
	results := make([]repositoryResult, len(r.inputs.file.Repos))
	var done sync.WaitGroup
	for i := range results {
		done.Go(func() {
			repo, result := &r.inputs.file.Repos[i], &results[i]
			result.Name = repo.Directory
			var err error
			if repo.AutoPush {
				err = r.pushWork(ctx, repo, summary, result)
			} else {
				err = r.describe(ctx, repo, result)
			}
			if err != nil {
				result.Error = err.Error()
				r.logf("Pushing %s: %s", repo.Directory, err)
			}
		})
	}
	done.Wait()
	return results
}

// describe sets what is checked out in a repository that is not pushed.
func (r *repositories) describe(ctx context.Context, repo *sessiongit.Repository, result *repositoryResult) (err error) {
	directory, _ := r.target(repo.Directory)
	if result.Commit, err = r.git(ctx, directory, "rev-parse", "HEAD"); err == nil {
		result.Branch, err = r.git(ctx, directory, "rev-parse", "--abbrev-ref", "HEAD")
	}
	return err
}

// revision is a commit that the server lacks.
type revision struct {
	// name for people, and suffix of the branch; an empty suffix for the branch of the session.
	name, suffix string
	// conflicts are files with markers of conflicts, with which it must not be pushed to the branch of the session.
	conflicts []string
}

// pushWork pushes all work in a repository. The result is pushed only if all of it arrived in its branches. The server and the
// container that talks to it cannot take the time that the commit needs.
func (r *repositories) pushWork(ctx context.Context, repo *sessiongit.Repository, summary string, result *repositoryResult) error {
	directory, _ := r.target(repo.Directory)
	if _, err := os.Stat(directory); err != nil {
		return fmt.Errorf("the agent removed the repository: %w", err)
	}
	cloning, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	if _, err := r.client.Clones(cloning); err != nil { // after a restart, the container clones again
		r.logf("The clone of %s cannot be used: %s", repo.Directory, err)
	}
	committing, cancel := context.WithTimeout(ctx, localTimeout)
	defer cancel()
	problems := newProblems(r.repair(committing, directory, repo), r.commitAll(committing, directory, summary)) // earlier commits are pushed nevertheless
	commit, headErr := r.resolve(committing, directory, "HEAD")
	revisions, err := r.unpushed(committing, directory)
	problems.add(headErr, err)
	result.Commit = commit
	pushing, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	var failed []revision
	notProposed := error(nil)
	for i := range revisions {
		v := &revisions[i]
		push, err := r.sendBundle(pushing, directory, repo.Directory, v)
		switch {
		case !push.Pushed:
			failed = append(failed, *v)
			problems.add(fmt.Errorf("pushing %s: %w", v.name, cmp.Or(err, errors.New(push.Error))))
		case v.isUnfinished():
			problems.add(fmt.Errorf("%s is in the branch %s", v.describe(), push.Branch))
		case push.Error != "": // all commits arrived
			notProposed = errors.New(push.Error)
		}
		if push.Pushed {
			r.logf("%s of %s was pushed to the branch %s", v.name, repo.Directory, push.Branch)
		}
		if v.suffix == "" {
			result.Branch, result.PullRequestURL = push.Branch, push.PullRequestURL
			result.Commit = cmp.Or(push.Commit, result.Commit)
		}
	}
	result.Pushed = len(revisions) > 0 && len(problems.errs) == 0
	if len(failed) > 0 {
		if err := r.archiveBundle(ctx, directory, repo.Directory, failed); err != nil {
			r.logf("What was not pushed of %s is not in an archive: %s", repo.Directory, err)
		} else {
			result.archived = bundleName(repo.Directory)
		}
	}
	problems.add(notProposed)
	return problems.join()
}

// problems are the reasons why not all work arrived.
type problems struct{ errs []error }

func newProblems(errs ...error) *problems {
	p := &problems{}
	p.add(errs...)
	return p
}

func (p *problems) add(errs ...error) {
	for _, err := range errs {
		if err != nil {
			p.errs = append(p.errs, err)
		}
	}
}

// join returns all problems in one line; nil without any.
func (p *problems) join() error {
	var texts []string
	for _, err := range p.errs {
		texts = append(texts, oneLine(err.Error()))
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

// repair makes a repository usable in which a git was killed, or whose metadata the agent destroyed.
func (r *repositories) repair(ctx context.Context, directory string, repo *sessiongit.Repository) error {
	metadata, clone := filepath.Join(directory, ".git"), r.clones[repo.Directory]
	r.removeLocks(metadata)
	resolved, err := filepath.EvalSymlinks(directory)
	if err != nil {
		return err
	}
	top, err := r.git(ctx, directory, "rev-parse", "--show-toplevel")
	if err == nil && top == resolved {
		_, err = r.git(ctx, directory, "status", "--porcelain", "--untracked-files=no")
	}
	problems := newProblems()
	switch {
	case err != nil && exitCode(err) < 0: // says nothing about the metadata
		return err
	case err != nil || top != resolved:
		// The files are the work. The history is that of the server.
		r.logf("The metadata of %s cannot be used, and is replaced by that of the server: %s", repo.Directory, cmp.Or(err, errors.New("it has none")))
		aside, err := r.replaceMetadata(ctx, metadata, repo, clone)
		switch {
		case err != nil && aside != "":
			return fmt.Errorf("replacing the metadata, which the agent destroyed, and which is kept in the workspace as %s: %w", aside, err)
		case err != nil:
			return fmt.Errorf("replacing the metadata, which the agent destroyed: %w", err)
		case aside != "":
			problems.add(fmt.Errorf("the agent destroyed the history, which is kept in the workspace as %s: its files are pushed, and its other commits are not", aside))
		}
	}
	fetch := func(from, refs string) error {
		_, err := r.git(ctx, directory, "fetch", "--quiet", "--no-tags", "--prune", "--no-recurse-submodules", "--no-write-fetch-head",
			"--", from, "+"+refs+"*:"+basePrefix+"*")
		return err
	}
	if err := fetch(clone.Path, branchPrefix); err != nil {
		problems.add(fetch(".", "refs/remotes/origin/")) // the container with the credentials restarted, and has no clone
	}
	return problems.join()
}

// removeLocks removes the locks of a git that was killed: all processes of the agent have ended. No reference ends with .lock.
func (r *repositories) removeLocks(metadata string) {
	root, err := os.OpenRoot(metadata)
	if err != nil {
		return // repair reports it
	}
	defer root.Close()
	_ = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // what cannot be read has no lock that matters
		case entry.IsDir() && entry.Name() == "objects":
			return fs.SkipDir
		case strings.HasSuffix(path, ".lock") && root.Remove(path) == nil:
			r.logf("The lock %s of a git command that was killed was removed", entry.Name())
		}
		return nil
	})
}

// replaceMetadata replaces the directory .git, and keeps the old one in the workspace: aside is its path there, also after an
// error, empty for none.
func (r *repositories) replaceMetadata(ctx context.Context, metadata string, repo *sessiongit.Repository, clone *sessiongit.Clone) (aside string, _ error) {
	parent := filepath.Join(r.inputs.workspace, stateDirectory)
	if _, err := os.Lstat(metadata); err == nil {
		directory, err := os.MkdirTemp(parent, "broken-"+repo.Directory+"-")
		if err != nil {
			return "", err
		}
		if err := os.Rename(metadata, filepath.Join(directory, ".git")); err != nil {
			return "", err
		}
		aside = filepath.Join(stateDirectory, filepath.Base(directory))
	}
	fresh, err := os.MkdirTemp(parent, "fresh-")
	if err != nil {
		return aside, err
	}
	defer os.RemoveAll(fresh)
	target := filepath.Join(fresh, "clone")
	if _, err := r.git(ctx, "", "clone", "--quiet", "--no-checkout", "--", clone.Path, target); err != nil {
		return aside, err
	}
	if err := r.configure(ctx, target, repo); err != nil {
		return aside, err
	}
	branch, start := r.branches(ctx, target, repo, clone)
	if start != "" {
		if _, err := r.git(ctx, target, "update-ref", branchPrefix+branch, start); err != nil {
			return aside, err
		}
	}
	if _, err := r.git(ctx, target, "symbolic-ref", "HEAD", branchPrefix+branch); err != nil {
		return aside, err
	}
	if err := os.Rename(filepath.Join(target, ".git"), metadata); err != nil || start == "" {
		return aside, err
	}
	_, err = r.git(ctx, filepath.Dir(metadata), "reset", "--quiet")
	return aside, err
}

// commitAll commits the changes in the working tree, and in those that the agent added with git worktree.
func (r *repositories) commitAll(ctx context.Context, directory, summary string) error {
	earlier, err := r.git(ctx, directory, "for-each-ref", "--format=%(refname)", workPrefix)
	if err != nil {
		return err
	}
	for ref := range strings.FieldsSeq(earlier) { // of an earlier attempt, whose files are still in the working tree
		if _, err := r.git(ctx, directory, "update-ref", "-d", ref); err != nil {
			return err
		}
	}
	lines, err := r.git(ctx, directory, "worktree", "list", "--porcelain")
	if err != nil {
		return err
	}
	problems := newProblems()
	for line := range strings.Lines(lines) {
		tree, found := strings.CutPrefix(strings.TrimSpace(line), "worktree ")
		if _, err := os.Stat(tree); !found || err != nil { // the agent may have deleted one
			continue
		}
		problems.add(r.commit(ctx, tree, summary))
	}
	return problems.join()
}

// commit commits all changes that are not ignored. Conflicts and changes in submodules must not be in the branch: nobody can use
// markers, or a link to a commit that exists nowhere. They become a commit beside the branch.
func (r *repositories) commit(ctx context.Context, directory, summary string) error {
	unmerged, err := r.git(ctx, directory, "diff", "--name-only", "--diff-filter=U")
	if err != nil {
		return err
	}
	if unmerged != "" {
		return r.commitUnfinished(ctx, directory, "changes were not committed, because a merge has conflicts in "+strings.Join(strings.Fields(unmerged), ", "))
	}
	changed, notAdded, err := r.stage(ctx, directory, nil, false)
	if err != nil {
		return err
	}
	conflicts, err := r.conflicts(ctx, directory, "--cached")
	if err != nil {
		return err
	}
	if len(conflicts) > 0 {
		return r.commitUnfinished(ctx, directory, "changes were not committed, because there are conflicts in "+strings.Join(conflicts, ", "))
	}
	problems := newProblems(notAdded, r.commitIndex(ctx, directory, summary))
	if len(changed) > 0 {
		problems.add(r.commitUnfinished(ctx, directory, "changes in the submodule "+strings.Join(changed, ", ")+" cannot be pushed: add its repository to repos"))
	}
	return problems.join()
}

func (r *repositories) commitIndex(ctx context.Context, directory, summary string) error {
	if status, err := r.git(ctx, directory, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all"); err != nil || status == "" {
		return err
	}
	_, err := r.git(ctx, directory, "commit", "--quiet", "--no-verify", "--message", commitMessage(r.inputs.name, summary))
	return err
}

// commitUnfinished commits the whole working tree beside the branch, with an index of its own: the repository stays as it is. It
// always returns an error, which begins with the reason.
func (r *repositories) commitUnfinished(ctx context.Context, directory, reason string) error {
	return newProblems(errors.New(reason), r.commitSnapshot(ctx, directory, reason)).join()
}

func (r *repositories) commitSnapshot(ctx context.Context, directory, reason string) error {
	temp, err := os.MkdirTemp("", "index-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	index := []string{"GIT_INDEX_FILE=" + filepath.Join(temp, "index")}
	args := []string{"commit-tree", "-m", "Unfinished work of the agent session " + r.inputs.name + "\n\n" + reason + "\n"}
	head, err := r.resolve(ctx, directory, "HEAD")
	if err != nil {
		return err
	}
	if head != "" {
		args = append(args, "-p", head)
		if _, err := r.gitWith(ctx, directory, index, "read-tree", head); err != nil {
			return err
		}
	}
	_, notAdded, err := r.stage(ctx, directory, index, true)
	if err != nil {
		return err
	}
	tree, err := r.gitWith(ctx, directory, index, "write-tree")
	if err != nil {
		return err
	}
	commit, err := r.git(ctx, directory, append(args, tree)...)
	if err != nil {
		return err
	}
	// There can be several, in the working trees of git worktree.
	_, err = r.git(ctx, directory, "update-ref", workPrefix+unfinishedSuffix+"/"+commit, commit)
	return newProblems(notAdded, err).join()
}

// stage adds all changes to the index. It adds the files of repositories that the agent created inside: git would add a link to a
// commit that exists nowhere else. With all, it does that with changed submodules too; otherwise it leaves them out and returns them.
// Files that git cannot add are an error of their own, because the others were added.
func (r *repositories) stage(ctx context.Context, directory string, environment []string, all bool) (changed []string, notAdded, err error) {
	worktrees, err := r.worktreesIn(ctx, directory)
	if err != nil {
		return nil, nil, err
	}
	embedded, changed, err := r.embedded(ctx, directory, environment)
	if err != nil {
		return nil, nil, err
	}
	if all {
		embedded, changed = append(embedded, changed...), nil
	}
	for _, name := range embedded { // of commits of the agent
		if _, err := r.gitWith(ctx, directory, environment, "rm", "--quiet", "--cached", "--ignore-unmatch", "--", name); err != nil {
			return nil, nil, err
		}
	}
	hidden, err := os.MkdirTemp(filepath.Join(r.inputs.workspace, stateDirectory), "nested-")
	if err != nil {
		return nil, nil, err
	}
	var nested []string
	aside := func(i int) string { return filepath.Join(hidden, strconv.Itoa(i)) }
	defer func() { // for the next attempt in this workspace
		for i, repository := range nested {
			if err := os.Rename(aside(i), repository); err != nil {
				r.logf("Restoring the nested repository %s: %s", filepath.Dir(repository), err)
			}
		}
		_ = os.Remove(hidden)
	}()
	for isComplete := false; !isComplete; { // a repository inside can have others inside
		var inside []string
		if err := r.streamNames(ctx, directory, environment, []string{"ls-files", "-z", "--others", "--exclude-standard"}, func(name string) {
			if strings.HasSuffix(name, "/") {
				inside = append(inside, name)
			}
		}); err != nil {
			return nil, nil, err
		}
		isComplete = true
		for _, name := range inside {
			repository := filepath.Join(directory, name, ".git")
			if slices.Contains(worktrees, strings.TrimSuffix(name, "/")) {
				continue // its file .git leads to the metadata of the repository itself
			}
			if err := os.Rename(repository, aside(len(nested))); err != nil {
				return nil, nil, fmt.Errorf("moving a nested repository aside: %w", err)
			}
			nested, isComplete = append(nested, repository), false
			r.logf("%s is a nested repository: its files are committed, and its own commits are not", name)
		}
	}
	args := []string{"add", "--all", "--ignore-errors", "--", "."}
	for _, name := range append(worktrees, changed...) {
		args = append(args, ":(exclude,literal)"+name)
	}
	_, notAdded = r.gitWith(ctx, directory, environment, args...)
	return changed, notAdded, nil
}

// embedded returns the repositories in the index that are no submodules, and the submodules with changes or commits that their server
// lacks, as far as this clone knows.
func (r *repositories) embedded(ctx context.Context, directory string, environment []string) (embedded, changed []string, err error) {
	var links []string
	if err := r.streamNames(ctx, directory, environment, []string{"ls-files", "-z", "--stage"}, func(entry string) {
		if description, name, _ := strings.Cut(entry, "\t"); strings.HasPrefix(description, "160000 ") {
			links = append(links, name)
		}
	}); err != nil {
		return nil, nil, err
	}
	paths, err := noneIfExit1(r.git(ctx, directory, "config", "--file", ".gitmodules", "--get-regexp", `[.]path$`)) // there may be no such file
	if err != nil {
		return nil, nil, err
	}
	for _, name := range links {
		inside := filepath.Join(directory, name)
		if _, err := os.Lstat(filepath.Join(inside, ".git")); err != nil {
			continue // a link that this session did not fill
		}
		isSubmodule := slices.ContainsFunc(strings.Split(paths, "\n"), func(line string) bool {
			_, value, _ := strings.Cut(line, " ")
			return value == name
		})
		if !isSubmodule {
			embedded = append(embedded, name)
			continue
		}
		status, err := r.git(ctx, inside, "status", "--porcelain")
		ahead, aheadErr := r.git(ctx, inside, "rev-list", "--count", "HEAD", "--branches", "--not", "--remotes")
		if err != nil || aheadErr != nil || status != "" || ahead != "0" {
			changed = append(changed, name)
		}
	}
	return embedded, changed, nil
}

// worktreesIn returns the further working trees of a repository, of git worktree, that are in its directory, relative to it.
func (r *repositories) worktreesIn(ctx context.Context, directory string) (inside []string, _ error) {
	lines, err := r.git(ctx, directory, "worktree", "list", "--porcelain")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(lines) {
		if tree, found := strings.CutPrefix(strings.TrimSpace(line), "worktree "+directory+"/"); found {
			inside = append(inside, tree)
		}
	}
	return inside, nil
}

// candidate is a commit that the server may lack.
type candidate struct{ name, commit string }

// suffix returns the suffix of the branch of a candidate. The first has the work of the session, unless it has conflicts or was put
// aside.
func (c candidate) suffix(isFirst, hasConflicts bool) string {
	suffix := cmp.Or(sessiongit.SuffixOf(c.name), "branch")
	switch {
	case c.name == "HEAD" && hasConflicts:
		return unfinishedSuffix
	case hasConflicts:
		return suffix + "-" + unfinishedSuffix
	case isFirst && c.name != unfinishedSuffix && c.name != stashName:
		return ""
	}
	return suffix
}

// unpushed returns what the server lacks, and makes a reference below workPrefix for each: HEAD, local branches with commits of their
// own, detached working trees, stashes, and unfinished work. If only others than HEAD have commits, the first has the work of the session.
func (r *repositories) unpushed(ctx context.Context, directory string) ([]revision, error) {
	candidates := []candidate{{"HEAD", "HEAD"}}
	for _, list := range []struct {
		name string
		args []string
	}{
		{"", []string{"for-each-ref", "--format=%(refname)", branchPrefix}},
		{"worktree", []string{"worktree", "list", "--porcelain"}},
		{stashName, []string{"stash", "list", "--format=HEAD %H"}},
		{unfinishedSuffix, []string{"for-each-ref", "--format=HEAD %(objectname)", workPrefix + unfinishedSuffix}},
	} {
		lines, err := r.git(ctx, directory, list.args...)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(lines) {
			line = strings.TrimSpace(line)
			commit, isCommit := strings.CutPrefix(line, "HEAD ")
			switch {
			case list.name == "":
				candidates = append(candidates, candidate{strings.TrimPrefix(line, branchPrefix), line})
			case isCommit && strings.Trim(commit, "0") != "": // a working tree without commits
				candidates = append(candidates, candidate{list.name, commit})
			}
		}
	}
	var revisions []revision
	problems := newProblems()
	not := []string{"--not", "--glob=" + basePrefix + "*"}
	for _, c := range candidates {
		commit, err := r.resolve(ctx, directory, c.commit)
		if err != nil {
			problems.add(err)
			continue
		}
		if commit == "" {
			continue // without commits, as in an empty repository
		}
		ahead, err := r.git(ctx, directory, append([]string{"rev-list", "--count", commit}, not...)...)
		if err != nil {
			return nil, err
		}
		if ahead == "0" {
			continue
		}
		v := revision{name: c.name}
		if c.name != unfinishedSuffix {
			if v.conflicts, err = r.conflicts(ctx, directory, r.base(ctx, directory, commit), commit); err != nil {
				return nil, err
			}
		}
		v.suffix = c.suffix(len(revisions) == 0, len(v.conflicts) > 0)
		for base, n := v.suffix, 2; slices.ContainsFunc(revisions, func(other revision) bool { return other.suffix == v.suffix }); n++ {
			v.suffix = base + "-" + strconv.Itoa(n)
		}
		if _, err := r.git(ctx, directory, "update-ref", v.ref(), commit); err != nil {
			return nil, err
		}
		revisions, not = append(revisions, v), append(not, commit)
	}
	return revisions, problems.join()
}

// resolve returns the commit of a revision; empty for a revision that does not exist. A git that fails for another reason, as one that
// was killed, says nothing about it.
func (r *repositories) resolve(ctx context.Context, directory, revision string) (string, error) {
	return noneIfExit1(r.git(ctx, directory, "rev-parse", "--verify", "--quiet", revision+"^{commit}"))
}

// noneIfExit1 returns nothing instead of the error of a git command that found nothing.
func noneIfExit1(output string, err error) (string, error) {
	if err != nil && exitCode(err) == 1 {
		return "", nil
	}
	return output, err
}

// exitCode returns the code with which a command ended by itself, negative if it did not.
func exitCode(err error) int {
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return failed.ExitCode()
	}
	return -1
}

// ref returns the reference of a revision.
func (v *revision) ref() string { return workPrefix + "push/" + cmp.Or(v.suffix, "HEAD") }

// isUnfinished reports whether a revision must not be in the branch of the session.
func (v *revision) isUnfinished() bool { return v.name == unfinishedSuffix || len(v.conflicts) > 0 }

func (v *revision) describe() string {
	if len(v.conflicts) > 0 {
		return v.name + " with conflicts in " + strings.Join(v.conflicts, ", ")
	}
	return "the unfinished work"
}

// base returns the newest commit of the server on which a commit is based, or the empty tree.
func (r *repositories) base(ctx context.Context, directory, commit string) string {
	bases, _ := r.git(ctx, directory, "rev-list", "--boundary", "--topo-order", commit, "--not", "--glob="+basePrefix+"*")
	for line := range strings.Lines(bases) {
		if boundary, found := strings.CutPrefix(strings.TrimSpace(line), "-"); found {
			return boundary
		}
	}
	empty, _ := r.git(ctx, directory, "hash-object", "-t", "tree", os.DevNull)
	return empty
}

// conflicts returns the files of a difference that get the three markers of a conflict.
func (r *repositories) conflicts(ctx context.Context, directory string, revisions ...string) ([]string, error) {
	args := append([]string{"diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules", "--no-prefix"}, revisions...)
	markers := [][]byte{[]byte("+<<<<<<< "), []byte("+======="), []byte("+>>>>>>> ")}
	var files []string
	file, next := "", 0
	err := r.stream(ctx, directory, nil, args, func(output io.Reader) error {
		return readLines(output, func(line []byte, _ int64) {
			name, isHeader := bytes.CutPrefix(line, []byte("+++ "))
			switch {
			case isHeader:
				file, next = string(bytes.TrimRight(name, "\t")), 0
			case next < len(markers) && bytes.HasPrefix(line, markers[next]):
				next++
				if next == len(markers) {
					files = append(files, file)
				}
			}
		})
	})
	return files, err
}

// stream runs a git command whose output can be too large for the memory of the runner.
func (r *repositories) stream(ctx context.Context, directory string, environment, args []string, read func(io.Reader) error) error {
	command := r.command(ctx, directory, args...)
	command.Env = append(command.Env, environment...)
	errOutput := &bytes.Buffer{}
	command.Stderr = errOutput
	output, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	err = read(output)
	_, _ = io.Copy(io.Discard, output) // after an error
	if err := errors.Join(err, command.Wait()); err != nil {
		return fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(errOutput.String()))
	}
	return nil
}

// streamNames runs a git command whose output has a NUL after each name.
func (r *repositories) streamNames(ctx context.Context, directory string, environment, args []string, use func(name string)) error {
	return r.stream(ctx, directory, environment, args, func(output io.Reader) error {
		names := bufio.NewScanner(output)
		names.Split(func(data []byte, _ bool) (int, []byte, error) {
			if i := bytes.IndexByte(data, 0); i >= 0 {
				return i + 1, data[:i], nil
			}
			return 0, nil, nil
		})
		for names.Scan() {
			use(names.Text())
		}
		return names.Err()
	})
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

// sendBundle sends a revision to the container with the credentials. It tries again if the container ends meanwhile, as at its memory
// limit: Kubernetes restarts it.
func (r *repositories) sendBundle(ctx context.Context, directory, repository string, v *revision) (push sessiongit.Push, err error) {
	for attempt := 1; ; attempt++ {
		err = r.bundle(ctx, directory, []revision{*v}, func(from io.Reader) error {
			push, err = r.client.Push(ctx, repository, v.suffix, from)
			return err
		})
		if err == nil || ctx.Err() != nil || attempt == containerAttempts {
			return push, err
		}
		r.logf("The container that pushes %s did not answer, and is tried again: %s", repository, err)
		select {
		case <-ctx.Done():
		case <-time.After(containerDelay):
		}
	}
}

// archiveBundle sends what was not pushed to the archive. The time for pushing may be over.
func (r *repositories) archiveBundle(ctx context.Context, directory, repository string, failed []revision) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), localTimeout)
	defer cancel()
	return r.bundle(ctx, directory, failed, func(from io.Reader) error { return r.archive(bundleName(repository), from) })
}

func bundleName(repository string) string { return repository + ".bundle" }

// bundle passes the commits of revisions that the server lacks as a git bundle.
func (r *repositories) bundle(ctx context.Context, directory string, revisions []revision, use func(io.Reader) error) error {
	args := []string{"bundle", "create", "--quiet", "-"}
	for i := range revisions {
		args = append(args, revisions[i].ref())
	}
	reader, writer := io.Pipe()
	command := r.command(ctx, directory, append(args, "--not", "--glob="+basePrefix+"*")...)
	errOutput := &bytes.Buffer{}
	command.Stdout, command.Stderr = writer, errOutput
	var done sync.WaitGroup
	done.Go(func() {
		err := command.Run()
		if err != nil {
			err = fmt.Errorf("git bundle: %w: %s", err, strings.TrimSpace(errOutput.String()))
		}
		_ = writer.CloseWithError(err)
	})
	err := use(reader)
	_ = reader.CloseWithError(cmp.Or(err, io.EOF))
	done.Wait()
	return err
}
