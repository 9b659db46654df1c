package sessiongit

import (
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
	headerTimeout  = 10 * time.Second
	directoryMode  = 0o755 // the agent's container reads it, and may have another user
)

// settings are the flags and inputs of the server.
type settings struct {
	directory, credentials, hosts, forge, forgeURL string
	session                                        string
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
	f.StringVar(&s.credentials, "credentials", "", "Directory with the files of the Secret: username and password, or ssh-privatekey and known_hosts.")
	f.StringVar(&s.hosts, "hosts", "", "Comma-separated hosts that get the credentials.")
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
	hosts := strings.Split(s.hosts, ",")
	v := &server{
		settings: s, log: log, cloned: make(chan struct{}), temp: home,
		git: &git{credentials: s.credentials, hosts: hosts, home: home, environment: os.Environ()},
	}
	if v.forge, err = newForge(s, hosts); err != nil {
		return err
	}
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
		if !filepath.IsLocal(r.Directory) || strings.ContainsRune(r.Directory, '/') || strings.HasPrefix(r.URL, "-") || strings.HasPrefix(r.Branch, "-") {
			return fmt.Errorf("repository %q with the branch %q and the directory %q is invalid", r.URL, r.Branch, r.Directory)
		}
	}
	return nil
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
	// pushing is held while commits are pushed.
	pushing sync.Mutex
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
	return web.Close()
}

func (v *server) cloneAll(ctx context.Context) {
	for i := range v.settings.repositories {
		r := &v.settings.repositories[i]
		clone := Clone{Directory: r.Directory, Path: v.clonePath(r)}
		if err := v.clone(ctx, r, clone.Path); err != nil {
			v.log.Error("Cloning failed", "repository", r.Directory, "error", err)
			clone.Error = err.Error()
		}
		v.clones = append(v.clones, clone)
	}
	close(v.cloned)
}

func (v *server) clonePath(r *Repository) string {
	return filepath.Join(v.settings.directory, r.Directory+".git")
}

// clone clones all branches: the agent may need them, and a bundle may be based on any of them.
func (v *server) clone(ctx context.Context, r *Repository, path string) error {
	if _, err := os.Stat(path); err == nil { // the container restarted
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	args := []string{"clone", "--bare", "--quiet"}
	if r.Depth > 0 {
		args = append(args, "--depth="+strconv.Itoa(r.Depth), "--no-single-branch")
	}
	if _, err := v.git.run(ctx, r.URL, append(args, "--", r.URL, path)...); err != nil {
		return err
	}
	if _, err := v.git.run(ctx, "", "-C", path, "rev-parse", "--verify", "--quiet", "refs/heads/"+r.Branch); err != nil {
		return fmt.Errorf("the repository has no branch %s", r.Branch)
	}
	return nil
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
	for i := range v.settings.repositories {
		if repo := &v.settings.repositories[i]; repo.Directory == name && repo.AutoPush {
			writeAnswer(w, v.receive(r.Context(), repo, suffix, http.MaxBytesReader(w, r.Body, maxBundleBytes)))
			return
		}
	}
	http.Error(w, "the session does not push this repository", http.StatusForbidden)
}

func (v *server) receive(ctx context.Context, r *Repository, suffix string, bundle io.Reader) Push {
	v.pushing.Lock()
	defer v.pushing.Unlock()
	push := Push{Branch: BranchOf(v.settings.session)}
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
	title, err := v.git.run(ctx, "", "-C", path, "log", "-1", "--format=%s", sessionRef)
	if err != nil {
		return err
	}
	body := "Made by the agent session " + v.settings.session + "."
	if own := BranchOf(v.settings.session); push.Branch != own {
		body += " The branch " + own + " has other commits, so this is a branch beside it."
	}
	push.PullRequestURL, err = v.forge.open(ctx, &pullRequest{url: r.URL, title: title, body: body, head: push.Branch, base: r.Branch})
	return err
}

const (
	// pushAttempts and pushDelay, which grows by a factor of three, bound the retries of a push that failed on its way.
	pushAttempts = 4
	pushDelay    = time.Second
	// shortCommit is the length of a commit in the name of a branch.
	shortCommit = 12
)

// pushBranch pushes the agent's commit. If the branch has other commits, it pushes to a branch beside it and changes push.Branch:
// nothing is overwritten, and nothing is lost.
func (v *server) pushBranch(ctx context.Context, r *Repository, push *Push) error {
	own, delay := push.Branch, pushDelay
	for attempt := 1; ; attempt++ {
		_, err := v.git.run(ctx, r.URL, "-C", v.clonePath(r), "push", "--quiet", "--no-verify", "--", r.URL, sessionRef+":refs/heads/"+push.Branch)
		switch {
		case err == nil:
			return nil
		case push.Branch == own && strings.Contains(err.Error(), "[rejected]"):
			push.Branch = own + "-" + push.Commit[:shortCommit]
			continue
		case attempt == pushAttempts || strings.Contains(err.Error(), "rejected]"): // by a hook or a protected branch
			return err
		}
		v.log.Warn("Pushing failed and is repeated", "repository", r.Directory, "error", err, "delay", delay.String())
		select {
		case <-ctx.Done():
			return err
		case <-time.After(delay):
		}
		delay *= 3
	}
}
