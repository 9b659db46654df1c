// Package gitserver is a git server for tests, on loopback by default: git http-backend over TLS with a password, and as much of the APIs
// of GitHub and GitLab as opening pull requests needs.
package gitserver

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi" //nolint:gosec // a fixed version of Go, and only on loopback
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/yardmaster/yardmaster/test/certtest"
)

// Faults of a server are those of requests of git with the password.
type Faults struct {
	// Pushes and Requests are how many of the next pushes, and of the next requests of any kind, get the status 503.
	Pushes, Requests int
	// Delay is how much longer each request takes.
	Delay time.Duration
	// Intercept answers requests in the place of git. It returns false for requests that git is to answer.
	Intercept func(http.ResponseWriter, *http.Request) bool
}

// Server is a git server with one repository, team/shop.git.
type Server struct {
	// URL of the server, with https, and Host of that.
	URL, Host string
	// CAFile has the certificate of the server.
	CAFile string
	// Username and Password that it accepts.
	Username, Password string

	directory string
	http      *httptest.Server
	mutex     sync.Mutex
	// pulls are the open pull requests, by branch.
	pulls    map[string]map[string]string
	lastPull map[string]any
	faults   Faults
	// authorized are the paths of requests with the password.
	authorized []string
	// app is the GitHub App whose tokens replace the password; nil without one.
	app *app
}

// New starts a server on loopback whose files are in a directory. Its repository has a branch main with the file README.
func New(ctx context.Context, directory, username, password string) (*Server, error) {
	return NewOn(ctx, "127.0.0.1", directory, username, password)
}

// NewOn starts a server on another address of this machine.
func NewOn(ctx context.Context, address, directory, username, password string) (*Server, error) {
	s := &Server{Username: username, Password: password, directory: directory, pulls: map[string]map[string]string{}}
	const script = `git init --quiet --bare --initial-branch=main team/shop.git
git -C team/shop.git config http.receivepack true
git init --quiet --initial-branch=main seed
echo 'A shop.' > seed/README
git -C seed add README
git -C seed -c user.name=a -c user.email=a@b.example commit --quiet --message=Begin
git -C seed push --quiet ../team/shop.git main`
	if err := s.shell(ctx, script); err != nil {
		return nil, err
	}
	program, err := exec.CommandContext(ctx, "git", "--exec-path").Output()
	if err != nil {
		return nil, err
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(program)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + directory, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=" + username},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v3/repos/team/shop/pulls", s.handleGitHub)
	mux.HandleFunc("/api/v3/", s.handleApp)
	mux.HandleFunc("/api/v4/projects/{project}/merge_requests", s.handleGitLab)
	mux.Handle("/", s.requirePassword(backend))
	s.http = httptest.NewUnstartedServer(mux)
	_ = s.http.Listener.Close()
	if s.http.Listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, "0")); err != nil {
		return nil, err
	}
	certificate, key, err := certtest.ForAddress(address)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	s.http.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	s.http.StartTLS()
	s.URL, s.Host = s.http.URL, s.http.Listener.Addr().String()
	s.CAFile = directory + "/ca.crt"
	return s, os.WriteFile(s.CAFile, certificate, 0o600)
}

// Close stops the server, with all connections.
func (s *Server) Close() {
	s.http.CloseClientConnections()
	s.http.Close()
}

// Fail sets the faults of the server.
func (s *Server) Fail(faults Faults) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.faults = faults
}

// AddRepository adds a repository with one commit, which no other has.
func (s *Server) AddRepository(ctx context.Context, path string) error {
	const script = `git -C seed -c user.name=a -c user.email=a@b.example commit --quiet --allow-empty --message="$0"
git clone --quiet --bare seed "$0"`
	return s.shell(ctx, script, path)
}

// Authorized returns the paths of all requests of git with the password.
func (s *Server) Authorized() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.authorized)
}

// LastPullRequest returns the fields of the last pull request that was opened, as the forge got them.
func (s *Server) LastPullRequest() map[string]any {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.lastPull
}

// Repository returns the directory of the repository.
func (s *Server) Repository() string { return s.directory + "/team/shop.git" }

// CloneURL returns the URL of the repository.
func (s *Server) CloneURL() string { return s.URL + "/team/shop.git" }

// PullRequests returns the number of open pull requests.
func (s *Server) PullRequests() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.pulls)
}

// Git runs git in the repository and returns its output.
func (s *Server) Git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", s.Repository()}, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (s *Server) shell(ctx context.Context, script string, args ...string) error {
	command := exec.CommandContext(ctx, "sh", append([]string{"-ec", script}, args...)...)
	command.Dir = s.directory
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func (s *Server) requirePassword(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.isAuthorized(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		s.mutex.Lock()
		s.authorized = append(s.authorized, r.URL.Path)
		faults := s.faults
		isPush := strings.HasSuffix(r.URL.Path, "/git-receive-pack")
		s.faults.Requests--
		if isPush {
			s.faults.Pushes--
		}
		s.mutex.Unlock()
		select {
		case <-time.After(faults.Delay):
		case <-r.Context().Done():
			return
		}
		if faults.Requests > 0 || isPush && faults.Pushes > 0 {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		if faults.Intercept == nil || !faults.Intercept(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// isAuthorized reports whether a request of git has the password, or a token of the App for its repository.
func (s *Server) isAuthorized(r *http.Request) bool {
	username, password, _ := r.BasicAuth()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.app == nil || username != s.Username {
		return username == s.Username && password == s.Password
	}
	repository, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), ".git")
	access := "read"
	if strings.Contains(r.URL.String(), "git-receive-pack") {
		access = "write"
	}
	return s.app.allows(password, repository, "contents", access)
}

func (s *Server) handleGitHub(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mutex.Lock()
	isAuthorized := token == s.Password
	if s.app != nil {
		isAuthorized = s.app.allows(token, "team/shop", "pull_requests", "write")
	}
	s.mutex.Unlock()
	if !isAuthorized {
		http.Error(w, `{"message": "Bad credentials"}`, http.StatusUnauthorized)
		return
	}
	_, branch, _ := strings.Cut(r.URL.Query().Get("head"), ":")
	s.handlePulls(w, r, "head", "html_url", branch, http.StatusUnprocessableEntity)
}

func (s *Server) handleGitLab(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Private-Token") != s.Password || r.PathValue("project") != "team/shop" {
		http.Error(w, `{"message": "401 Unauthorized"}`, http.StatusUnauthorized)
		return
	}
	s.handlePulls(w, r, "source_branch", "web_url", r.URL.Query().Get("source_branch"), http.StatusConflict)
}

// handlePulls opens a pull request, or answers with this status if its branch has one, and lists the one of a branch.
func (s *Server) handlePulls(w http.ResponseWriter, r *http.Request, headField, urlField, branch string, exists int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if r.Method == http.MethodGet {
		open := []map[string]string{}
		if p, found := s.pulls[branch]; found {
			open = append(open, p)
		}
		writeJSON(w, open)
		return
	}
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	head, _ := body[headField].(string)
	if _, found := s.pulls[head]; found {
		http.Error(w, `{"message": "A pull request already exists"}`, exists)
		return
	}
	s.pulls[head] = map[string]string{urlField: fmt.Sprintf("https://%s/team/shop/pull/%d", s.Host, len(s.pulls)+1)}
	s.lastPull = body
	w.WriteHeader(http.StatusCreated)
	writeJSON(w, s.pulls[head])
}

func writeJSON(w http.ResponseWriter, value any) {
	raw, err := json.Marshal(value)
	if err != nil { // maps of strings always marshal
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(raw)
}

// AppToken is a token that the server made for a GitHub App.
type AppToken struct {
	Repository  string
	Permissions map[string]string
	Revoked     bool
}

// app is a GitHub App that is installed for all repositories.
type app struct {
	id     string
	key    *rsa.PublicKey
	tokens map[string]*AppToken
}

// ClockHeader of a request has how far the clock of the server is ahead when it answers.
const ClockHeader = "Test-Clock"

const installation = 77

// SetApp makes the server accept tokens of a GitHub App instead of the password.
func (s *Server) SetApp(id string, key *rsa.PublicKey) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.app = &app{id: id, key: key, tokens: map[string]*AppToken{}}
}

// AppTokens returns all tokens that the server made.
func (s *Server) AppTokens() map[string]AppToken {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	tokens := map[string]AppToken{}
	for name, token := range s.app.tokens {
		tokens[name] = *token
	}
	return tokens
}

// MakeAppToken makes a token as if an App had asked for it.
func (s *Server) MakeAppToken(repository string, permissions map[string]string) string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	token := "ghs_" + rand.Text()
	s.app.tokens[token] = &AppToken{Repository: repository, Permissions: permissions}
	return token
}

// allows reports whether a token has a permission for a repository. The server's mutex must be held.
func (a *app) allows(token, repository, permission, access string) bool {
	t := a.tokens[token]
	return t != nil && !t.Revoked && t.Repository == repository && (t.Permissions[permission] == access || t.Permissions[permission] == "write")
}

// handleApp answers requests of GitHub Apps, and the requests with their tokens.
func (s *Server) handleApp(w http.ResponseWriter, r *http.Request) {
	s.mutex.Lock()
	a := s.app
	s.mutex.Unlock()
	ahead, _ := time.ParseDuration(r.Header.Get(ClockHeader))
	now := time.Now().Add(ahead)
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	if a == nil {
		http.NotFound(w, r)
		return
	}
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	path := strings.TrimPrefix(r.URL.Path, "/api/v3")
	if path == "/installation/token" && r.Method == http.MethodDelete {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		if t := a.tokens[bearer]; t == nil || t.Revoked {
			http.Error(w, `{"message": "Bad credentials"}`, http.StatusUnauthorized)
			return
		}
		a.tokens[bearer].Revoked = true
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if err := a.checkAssertion(bearer, now); err != nil {
		http.Error(w, fmt.Sprintf(`{"message": %q}`, err), http.StatusUnauthorized)
		return
	}
	repository, isSearch := strings.CutSuffix(strings.TrimPrefix(path, "/repos/"), "/installation")
	switch {
	case isSearch && r.Method == http.MethodGet:
		if !s.hasRepository(repository) {
			http.Error(w, `{"message": "Not Found"}`, http.StatusNotFound)
			return
		}
		writeJSON(w, map[string]any{"id": installation, "account": map[string]string{"login": filepath.Dir(repository)}})
	case path == fmt.Sprintf("/app/installations/%d/access_tokens", installation) && r.Method == http.MethodPost:
		var body struct {
			Repositories []string          `json:"repositories"`
			Permissions  map[string]string `json:"permissions"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Repositories) != 1 || !s.hasRepository("team/"+body.Repositories[0]) {
			http.Error(w, `{"message": "There is at least one repository that does not exist or is not accessible to the parent installation."}`, http.StatusUnprocessableEntity)
			return
		}
		name := "team/" + body.Repositories[0]
		token := s.MakeAppToken(name, body.Permissions)
		w.WriteHeader(http.StatusCreated)
		writeJSON(w, map[string]any{
			"token": token, "expires_at": now.Add(time.Hour).UTC(), "permissions": body.Permissions, "repositories": []any{map[string]string{"full_name": name}},
		})
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) hasRepository(name string) bool {
	_, err := os.Stat(filepath.Join(s.directory, name+".git"))
	return err == nil
}

// checkAssertion checks a JSON Web Token as GitHub does.
func (a *app) checkAssertion(assertion string, now time.Time) error {
	parts := strings.Split(assertion, ".")
	if len(parts) != 3 {
		return errors.New("a JSON web token could not be decoded")
	}
	signature, signatureErr := base64.RawURLEncoding.DecodeString(parts[2])
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err = errors.Join(err, signatureErr, rsa.VerifyPKCS1v15(a.key, crypto.SHA256, digest[:], signature)); err != nil {
		return errors.New("a JSON web token could not be decoded")
	}
	var claims struct {
		Issuer   string `json:"iss"`
		IssuedAt int64  `json:"iat"`
		Expires  int64  `json:"exp"`
	}
	const longest = 10 * time.Minute
	switch err := json.Unmarshal(raw, &claims); {
	case err != nil || claims.Issuer != a.id:
		return errors.New("Integration not found") //nolint:staticcheck // the text of GitHub
	case claims.IssuedAt > now.Unix():
		return errors.New("'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued")
	case claims.Expires <= now.Unix():
		return errors.New("'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires")
	case claims.Expires > now.Add(longest).Unix():
		return errors.New("'Expiration time' claim ('exp') is too far in the future")
	}
	return nil
}
