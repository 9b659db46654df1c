// Package gitserver is a git server for tests, on loopback by default: git http-backend over TLS with a password, and as much of the APIs
// of GitHub and GitLab as opening pull requests needs.
package gitserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
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
	certificate, err := newCertificate(address)
	if err != nil {
		return nil, err
	}
	s.http.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	s.http.StartTLS()
	s.URL, s.Host = s.http.URL, s.http.Listener.Addr().String()
	s.CAFile = directory + "/ca.crt"
	return s, os.WriteFile(s.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw}), 0o600)
}

// newCertificate returns a certificate for an address, which is its own authority.
func newCertificate(address string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "gitserver"}, IPAddresses: []net.IP{net.ParseIP(address)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, err
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
