package gitserver

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

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
