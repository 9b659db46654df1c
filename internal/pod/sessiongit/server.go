package sessiongit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/yardmaster/yardmaster/internal/pod/sessionsocket"
)

const (
	// maxBundleBytes bounds an agent's bundle. The volume is bounded too.
	maxBundleBytes = 4 << 30
	headerTimeout  = time.Minute // a node may be busy
	directoryMode  = 0o755       // the agent's container reads it, and may have another user
)

// settings are the flags and inputs of the server.
type settings struct {
	directory, credentials, forge, forgeURL string
	session                                 string
	// caFile has the authorities that git trusts; empty for the system's authorities.
	caFile       string
	repositories []Repository
}

// Run clones the repositories of the session and serves the agent's container until SIGTERM.
func Run(ctx context.Context, args []string, getenv func(string) string, errOut io.Writer) error {
	s := &settings{session: getenv("AGENTIC_SESSION"), caFile: os.Getenv("GIT_SSL_CAINFO")}
	f := flag.NewFlagSet("session-runner git", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&s.directory, "directory", "/git", "Directory that the agent's container mounts read-only.")
	f.StringVar(&s.credentials, "credentials", "", "Directory with the files of the Secret: username and password, ssh-privatekey and known_hosts, or githubAppID and githubAppPrivateKey.")
	patterns := f.String("repositories", "", "Comma-separated patterns of the repositories that get the credentials, such as github.com/acme/*.")
	f.StringVar(&s.forge, "forge", "", "GitHub or GitLab, to open pull requests.")
	f.StringVar(&s.forgeURL, "forge-url", "", "URL of the API of the forge. Default: that of the repository's host.")
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := s.readSession(getenv("AGENTIC_SESSION_FILE")); err != nil {
		return fmt.Errorf("reading the session's inputs: %w", err)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	home, err := os.MkdirTemp("", "git-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	log := slog.New(slog.NewJSONHandler(errOut, nil))
	scope, err := ParseScope(strings.FieldsFunc(*patterns, func(r rune) bool { return r == ',' }))
	if err != nil {
		return fmt.Errorf("--repositories: %w", err)
	}
	client := &forgeClient{forge: s.forge, api: s.forgeURL, credentials: s.credentials, scope: scope, log: log}
	if client.http, err = newHTTPClient(s.caFile); err != nil {
		return err
	}
	v := &server{
		settings: s, log: log, cloned: make(chan struct{}), temp: home, pushing: map[string]*sync.Mutex{},
		git: &git{credentials: s.credentials, scope: scope, forge: client, home: home, environment: os.Environ()},
	}
	for i := range s.repositories {
		v.pushing[s.repositories[i].Directory] = &sync.Mutex{}
	}
	if v.forge, err = newForge(client); err != nil {
		return err
	}
	defer client.revocations.Wait()
	return v.run(ctx)
}

func (s *settings) readSession(path string) error {
	if s.session == "" {
		return errors.New("AGENTIC_SESSION is not set")
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var in struct {
		Repos []Repository `json:"repos"`
		Agent struct {
			Workflow *struct {
				URL    string `json:"url"`
				Branch string `json:"branch"`
			} `json:"workflow"`
		} `json:"agent"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return err
	}
	s.repositories = in.Repos
	if w := in.Agent.Workflow; w != nil {
		s.repositories = append(s.repositories, Repository{URL: w.URL, Branch: w.Branch, Directory: WorkflowDirectory})
	}
	for i := range s.repositories {
		r := &s.repositories[i]
		r.URL = normalize(r.URL)
		if !filepath.IsLocal(r.Directory) || strings.ContainsRune(r.Directory, '/') || isOption(r.URL, r.Branch, r.Push.Branch, r.Push.Base) {
			return fmt.Errorf("repository %q with the branch %q and the directory %q is invalid", r.URL, r.Branch, r.Directory)
		}
	}
	return nil
}

// isOption reports whether git could take a text for an option.
func isOption(texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(text, "-") })
}

type server struct {
	settings *settings
	git      *git
	forge    forge
	log      *slog.Logger
	temp     string

	// clones are valid once cloned is closed.
	clones []Clone
	cloned chan struct{}
	// pushing has a mutex for each repository, which is held while its commits are pushed: a server that does not answer must not
	// delay the others.
	pushing map[string]*sync.Mutex
}

func (v *server) run(ctx context.Context) error {
	listener, err := sessionsocket.Listen(ctx, filepath.Join(v.settings.directory, socketName))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /clones", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-v.cloned:
			writeAnswer(w, v.clones)
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("POST /push/{directory}", v.handlePush)
	web := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: 8 << 10, BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(listener) }()
	v.cloneAll(ctx)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// Requests end with ctx, and then their tokens are revoked. An agent that sends a bundle slowly does not delay the end for long.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*stopDelay)
	defer cancel()
	if err := web.Shutdown(end); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return web.Close()
}

// cloneAll clones all repositories at the same time: a server that does not answer must not delay the others.
func (v *server) cloneAll(ctx context.Context) {
	v.clones = make([]Clone, len(v.settings.repositories))
	var done sync.WaitGroup
	for i := range v.settings.repositories {
		done.Go(func() {
			r := &v.settings.repositories[i]
			clone := Clone{Directory: r.Directory, Path: v.clonePath(r)}
			if err := v.clone(ctx, r, &clone); err != nil {
				v.log.Error("Cloning failed", "repository", r.Directory, "error", err)
				clone.Error = err.Error()
			}
			v.clones[i] = clone
		})
	}
	done.Wait()
	close(v.cloned)
}

func (v *server) clonePath(r *Repository) string {
	return filepath.Join(v.settings.directory, r.Directory+".git")
}

// clone clones all branches: the agent may need them, and a bundle may be based on any of them. It accepts what git accepts.
func (v *server) clone(ctx context.Context, r *Repository, clone *Clone) error {
	if err := v.fetchClone(ctx, &r.URL, clone.Path, r.Depth); err != nil {
		return err
	}
	head, err := v.git.run(ctx, "", "-C", clone.Path, "symbolic-ref", "--short", "HEAD")
	if err != nil {
		return fmt.Errorf("the server's HEAD is no branch, so set branch: %w", err)
	}
	clone.Branch = cmp.Or(r.Branch, head)
	branches, err := v.git.run(ctx, "", "-C", clone.Path, "for-each-ref", "--format=%(refname)", "refs/heads")
	if err != nil || branches == "" { // an empty repository
		return err
	}
	if !slices.Contains(strings.Fields(branches), "refs/heads/"+clone.Branch) {
		return fmt.Errorf("the repository has no branch %s", clone.Branch)
	}
	clone.Submodules = v.cloneSubmodules(ctx, r.URL, clone.Path, "refs/heads/"+clone.Branch, r.Depth, 1)
	return nil
}

const (
	// cloneTimeout bounds the retries of a clone that fails on its way, and retryDelay and maxRetryDelay the time between two.
	cloneTimeout  = 2 * time.Minute
	retryDelay    = time.Second
	maxRetryDelay = 30 * time.Second
)

// fetchClone clones a repository without a working tree. It tries again if the server does not answer. Git follows no redirection with the
// credentials, but GitLab redirects to the name with .git, so that name is tried too, and is kept.
func (v *server) fetchClone(ctx context.Context, url *string, path string, depth int) error {
	args := []string{"clone", "--bare", "--quiet"}
	if depth > 0 {
		args = append(args, "--depth="+strconv.Itoa(depth), "--no-single-branch")
	}
	end := time.Now().Add(cloneTimeout)
	return v.retry(ctx, func() error {
		if err := os.RemoveAll(path); err != nil { // the container restarted, or an earlier attempt
			return err
		}
		_, err := v.git.run(ctx, *url, append(args, "--", *url, path)...)
		if err != nil && strings.Contains(err.Error(), "error: 30") && !strings.HasSuffix(*url, gitSuffix) {
			*url += gitSuffix
			_, err = v.git.run(ctx, *url, append(args, "--", *url, path)...)
		}
		return err
	}, func(err error) bool { return !isPermanent(err) && time.Now().Add(waitOf(err)).Before(end) })
}

// retry repeats an action until it succeeds, fails in a way that does not pass, or ctx ends.
func (v *server) retry(ctx context.Context, action func() error, isTransient func(error) bool) error {
	for delay := retryDelay; ; delay = min(delay*2, maxRetryDelay) {
		err := action()
		if err == nil || ctx.Err() != nil || !isTransient(err) {
			return err
		}
		wait := max(delay, waitOf(err))
		v.log.Warn("The server of the repository failed, and is tried again", "error", err, "delay", wait.String())
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// waitOf returns how long the forge wants no further request after an error.
func waitOf(err error) time.Duration {
	if refusal, isRefusal := errors.AsType[*forgeError](err); isRefusal {
		return refusal.wait
	}
	return 0
}

// isPermanent reports whether an error of git, or of making its token, remains if nobody changes anything. Only an error of the server or
// the network may pass.
func isPermanent(err error) bool {
	if refusal, isRefusal := errors.AsType[*forgeError](err); isRefusal {
		return refusal.isPermanent()
	}
	if errors.As(err, new(permanentError)) {
		return true
	}
	text := err.Error()
	return !strings.Contains(text, "error: 429") && !strings.Contains(text, "error: 408") && slices.ContainsFunc([]string{
		"Authentication failed", "could not read Username", "could not read Password", "allows no credentials", "ermission denied", "error: 3", "error: 4",
		"not found", "does not exist", "Host key verification failed", "certificate", "transport '", "rejected]", "invalid refspec", "illegal format", "cannot be parsed", "blocked", "Cannot obtain needed object", "No space left",
	}, func(part string) bool { return strings.Contains(text, part) })
}

const (
	// maxSubmoduleDepth and maxSubmodules bound what a repository can make this container clone.
	maxSubmoduleDepth = 4
	maxSubmodules     = 64
)

// cloneSubmodules clones the submodules of a commit, and those inside. A submodule that cannot be cloned has an error, and does not
// keep the session from working on the rest.
func (v *server) cloneSubmodules(ctx context.Context, url, clone, commit string, depth, level int) []Submodule {
	lines, err := v.git.run(ctx, "", "-C", clone, "config", "--blob", commit+":.gitmodules", "--get-regexp", `^submodule[.].*[.](path|url)$`)
	if err != nil {
		return nil // there is no such file
	}
	var submodules []Submodule
	for line := range strings.Lines(lines) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, field := strings.TrimPrefix(key[:strings.LastIndexByte(key, '.')], "submodule."), key[strings.LastIndexByte(key, '.')+1:]
		i := slices.IndexFunc(submodules, func(m Submodule) bool { return m.Name == name })
		if i < 0 {
			i, submodules = len(submodules), append(submodules, Submodule{Name: name})
		}
		if field == "path" {
			submodules[i].Directory = value
		} else {
			submodules[i].URL = normalize(resolveURL(url, value))
		}
	}
	for i := range submodules[:min(len(submodules), maxSubmodules)] {
		m := &submodules[i]
		m.Path = strings.TrimSuffix(clone, ".git") + "." + strconv.Itoa(i) + ".git"
		if err := v.cloneSubmodule(ctx, m, clone, commit, depth, level); err != nil {
			v.log.Error("Cloning a submodule failed", "submodule", m.Directory, "error", err)
			m.Error = err.Error()
		}
	}
	return submodules[:min(len(submodules), maxSubmodules)]
}

func (v *server) cloneSubmodule(ctx context.Context, m *Submodule, clone, commit string, depth, level int) error {
	if !filepath.IsLocal(m.Directory) || m.URL == "" || isOption(m.URL, m.Directory) || level > maxSubmoduleDepth {
		return errors.New("its path or URL is not valid, or it is too deep in others")
	}
	link, err := v.git.run(ctx, "", "-C", clone, "rev-parse", "--verify", "--quiet", commit+":"+m.Directory)
	if err != nil {
		return errors.New("the branch does not contain it")
	}
	if err := v.fetchClone(ctx, &m.URL, m.Path, depth); err != nil {
		return err
	}
	if _, err := v.git.run(ctx, "", "-C", m.Path, "cat-file", "-e", link); err != nil { // no branch contains it, or depth is too small
		if _, err := v.git.run(ctx, m.URL, "-C", m.Path, "fetch", "--quiet", "--", m.URL, link); err != nil {
			return err
		}
	}
	m.Submodules = v.cloneSubmodules(ctx, m.URL, m.Path, link, depth, level+1)
	return nil
}

// resolveURL returns the URL of a submodule, which can be relative to the URL of its repository.
func resolveURL(base, relative string) string {
	if !strings.HasPrefix(relative, "./") && !strings.HasPrefix(relative, "../") {
		return relative
	}
	base = strings.TrimSuffix(base, "/")
	for {
		if rest, found := strings.CutPrefix(relative, "./"); found {
			relative = rest
			continue
		}
		rest, found := strings.CutPrefix(relative, "../")
		end := strings.LastIndexAny(base, "/:")
		if !found || end < 0 {
			return base + "/" + relative
		}
		if base[end] == ':' { // git@host:path
			return base[:end+1] + rest
		}
		base, relative = base[:end], rest
	}
}

func writeAnswer(w http.ResponseWriter, answer any) {
	raw, err := json.Marshal(answer)
	if err != nil { // strings and booleans always marshal
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(raw)
}

func (v *server) handlePush(w http.ResponseWriter, r *http.Request) {
	name, suffix := r.PathValue("directory"), r.URL.Query().Get("suffix")
	if suffix != "" && (len(suffix) > maxBranchSuffix || !branchSuffix.MatchString(suffix)) {
		http.Error(w, fmt.Sprintf("%q cannot be part of the name of a branch", suffix), http.StatusBadRequest)
		return
	}
	select {
	case <-v.cloned: // it is not after a restart of the container
	case <-r.Context().Done():
		return
	}
	for i := range v.settings.repositories {
		if repo := &v.settings.repositories[i]; repo.Directory == name && repo.AutoPush {
			writeAnswer(w, v.receive(r.Context(), repo, suffix, http.MaxBytesReader(w, r.Body, maxBundleBytes)))
			return
		}
	}
	http.Error(w, "the session does not push this repository", http.StatusForbidden)
}

func (v *server) receive(ctx context.Context, r *Repository, suffix string, bundle io.Reader) Push {
	v.pushing[r.Directory].Lock()
	defer v.pushing[r.Directory].Unlock()
	push := Push{Branch: r.PushBranch(v.settings.session)}
	if suffix != "" {
		push.Branch += "-" + suffix
	}
	if err := v.push(ctx, r, suffix == "", bundle, &push); err != nil {
		v.log.Error("Pushing failed", "repository", r.Directory, "error", err)
		push.Error = err.Error()
	}
	return push
}

// sessionRef is the reference of the agent's commit in the clone.
const sessionRef = "refs/agentic/head"

// fetchBundle returns a command that takes a reference of a bundle into a clone, and checks its objects. It accepts dates and
// identities that git accepts from a server: old commits of many repositories have them, and a bundle can contain these commits.
func fetchBundle(clone, bundle, reference string) []string {
	args := []string{"-C", clone, "-c", "protocol.file.allow=always", "-c", "fetch.fsckObjects=true"}
	for _, message := range []string{
		"badDate", "badDateOverflow", "badEmail", "badName", "badTimezone", "missingEmail", "missingNameBeforeEmail", "missingSpaceBeforeDate",
		"missingSpaceBeforeEmail", "zeroPaddedDate",
	} {
		args = append(args, "-c", "fetch.fsck."+message+"=ignore")
	}
	return append(args, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--", bundle, "+"+reference+":"+sessionRef)
}

func (v *server) push(ctx context.Context, r *Repository, propose bool, bundle io.Reader, push *Push) error {
	file, err := os.CreateTemp(v.temp, "bundle-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = io.Copy(file, bundle)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("reading the bundle: %w", err)
	}
	path := v.clonePath(r)
	if _, err := v.git.run(ctx, "", "-C", path, "bundle", "verify", "--quiet", file.Name()); err != nil {
		push.Incomplete = strings.Contains(err.Error(), "prerequisite")
		return err
	}
	heads, err := v.git.run(ctx, "", "bundle", "list-heads", file.Name())
	if err != nil {
		return err
	}
	_, head, _ := strings.Cut(heads, " ")
	if head == "" || strings.ContainsAny(head, "\n:*") {
		return errors.New("the bundle must have one reference")
	}
	if _, err := v.git.run(ctx, "", fetchBundle(path, file.Name(), head)...); err != nil {
		return err
	}
	if push.Commit, err = v.git.run(ctx, "", "-C", path, "rev-parse", sessionRef); err != nil {
		return err
	}
	if err := v.pushBranch(ctx, r, push); err != nil {
		return err
	}
	push.Pushed = true
	if v.forge == nil || !propose {
		return nil
	}
	push.PullRequestURL, err = v.propose(ctx, r, push.Branch)
	return err
}

// propose opens a pull request for a branch, or finds the open one. It opens nothing for the base itself, and in an empty repository.
func (v *server) propose(ctx context.Context, r *Repository, branch string) (string, error) {
	path := v.clonePath(r)
	base, err := v.git.run(ctx, "", "-C", path, "symbolic-ref", "--short", "HEAD")
	if base = cmp.Or(r.Push.Base, r.Branch, base); base == "" {
		return "", err
	}
	if _, err := v.git.run(ctx, "", "-C", path, "rev-parse", "--verify", "--quiet", "refs/heads/"+base); err != nil && r.Push.Base == "" || branch == base {
		return "", nil
	}
	title, err := v.git.run(ctx, "", "-C", path, "log", "-1", "--format=%s", sessionRef)
	if err != nil {
		return "", err
	}
	body := "Made by the agent session " + v.settings.session + "."
	if own := r.PushBranch(v.settings.session); branch != own {
		body += " The branch " + own + " has other commits or is protected, so this is a branch beside it."
	}
	return v.forge.open(ctx, &pullRequest{url: r.URL, title: title, body: body, head: branch, base: base, draft: r.Push.Draft})
}

// shortCommit is the length of a commit in the name of a branch.
const shortCommit = 12

// pushBranch pushes the agent's commit, until the client does not wait longer. If the server rejects it, because the branch has other
// commits or is protected, it pushes to a branch beside it and changes push.Branch: nothing is overwritten, and nothing is lost.
func (v *server) pushBranch(ctx context.Context, r *Repository, push *Push) error {
	send := func() error {
		_, err := v.git.run(ctx, r.URL, "-C", v.clonePath(r), "push", "--quiet", "--no-verify", "--", r.URL, sessionRef+":refs/heads/"+push.Branch)
		return err
	}
	isTransient := func(err error) bool { return !isPermanent(err) }
	err := v.retry(ctx, send, isTransient)
	if err == nil || !strings.Contains(err.Error(), "rejected]") {
		return err
	}
	if strings.Contains(err.Error(), "cannot create") || strings.Contains(err.Error(), "conflict") {
		push.Branch = strings.ReplaceAll(push.Branch, "/", "-") // a branch session keeps session/name from existing
	}
	push.Branch += "-" + push.Commit[:shortCommit]
	return v.retry(ctx, send, isTransient)
}
