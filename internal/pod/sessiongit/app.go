package sessiongit

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Keys of a Secret with a GitHub App.
const (
	appIDKey      = "githubAppID"
	appPrivateKey = "githubAppPrivateKey"
)

const (
	// assertionAge and assertionLifetime are from where to where an App's assertion is valid. GitHub accepts at most ten minutes, and
	// recommends a begin in the past, because clocks differ.
	assertionAge      = time.Minute
	assertionLifetime = 8 * time.Minute
	// maxClockError bounds how wrong this node's clock may be. A server must not get assertions for a distant future.
	maxClockError     = time.Hour
	revocationTimeout = 5 * time.Second
)

// Permissions of tokens of an App.
var (
	readAccess    = map[string]string{"contents": "read", "metadata": "read"}
	pushAccess    = map[string]string{"contents": "write", "metadata": "read"}
	proposeAccess = map[string]string{"contents": "read", "metadata": "read", "pull_requests": "write"}
)

var (
	appIDExpression = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)
	tokenExpression = regexp.MustCompile(`^[\x21-\x7e]{1,1000}$`)
)

// app is a GitHub App. It signs assertions, with which GitHub makes tokens.
type app struct {
	id  string
	key *rsa.PrivateKey
}

// readApp returns the App in the files of a Secret; nil without an App.
func readApp(directory string) (*app, error) {
	values := map[string]string{}
	for _, key := range []string{appIDKey, appPrivateKey} {
		raw, err := os.ReadFile(filepath.Join(directory, key))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("reading the Secret of the SessionRunner's git: %w", err)
		}
		values[key] = strings.TrimSpace(string(raw))
	}
	a := &app{id: values[appIDKey]}
	refuse := func(key, problem string) (*app, error) {
		return nil, permanentError{fmt.Errorf("%s in the Secret of the SessionRunner's git %s", key, problem)}
	}
	switch {
	case directory == "" || values[appIDKey] == "" && values[appPrivateKey] == "":
		return nil, nil //nolint:nilnil // other credentials are valid
	case values[appIDKey] == "":
		return refuse(appIDKey, "is missing, "+appPrivateKey+" requires it")
	case values[appPrivateKey] == "":
		return refuse(appPrivateKey, "is missing, "+appIDKey+" requires it")
	case !appIDExpression.MatchString(a.id):
		return refuse(appIDKey, "is not the ID or the client ID of a GitHub App")
	}
	block, _ := pem.Decode([]byte(values[appPrivateKey]))
	if block == nil {
		return refuse(appPrivateKey, "is not in PEM form")
	}
	var err error
	if a.key, err = x509.ParsePKCS1PrivateKey(block.Bytes); err != nil {
		parsed, _ := x509.ParsePKCS8PrivateKey(block.Bytes)
		var isRSA bool
		if a.key, isRSA = parsed.(*rsa.PrivateKey); !isRSA {
			return refuse(appPrivateKey, "is not an RSA private key in the form PKCS#1 or PKCS#8")
		}
	}
	return a, nil
}

// assertion returns a JSON Web Token by which GitHub knows the App.
func (a *app) assertion(now time.Time) (string, error) {
	claims, err := json.Marshal(map[string]any{"iss": a.id, "iat": now.Add(-assertionAge).Unix(), "exp": now.Add(assertionLifetime).Unix()})
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + encode(claims)
	digest := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, a.key, crypto.SHA256, digest[:])
	if err != nil {
		return "", permanentError{fmt.Errorf("%s in the Secret of the SessionRunner's git: %w", appPrivateKey, err)}
	}
	return signed + "." + encode(signature), nil
}

// appToken makes a token of the Secret's GitHub App for one use of one repository, and returns a function that revokes the token. The
// token is empty if the Secret has no App.
func (c *forgeClient) appToken(ctx context.Context, repository string, permissions map[string]string) (token string, revoke func(), err error) {
	revoke = func() {}
	app, err := readApp(c.credentials)
	if app == nil || err != nil {
		return "", revoke, err
	}
	if c.forge == GitLab {
		return "", revoke, permanentError{errors.New("the Secret of the SessionRunner's git has a GitHub App, and git.forge is " + GitLab)}
	}
	api, project, err := c.locate(repository, gitHubAPI)
	if err != nil {
		return "", revoke, permanentError{err}
	}
	_, name, _ := strings.Cut(project, "/")
	if name == "" || strings.Contains(name, "/") {
		return "", revoke, permanentError{fmt.Errorf("%s is not owner/name, as repositories of GitHub are", project)}
	}
	var installation struct {
		ID int64 `json:"id"`
	}
	find := func(now time.Time) (assertion string, err error) {
		if assertion, err = app.assertion(now); err != nil {
			return "", err
		}
		_, err = c.send(ctx, http.MethodGet, api+"/repos/"+project+"/installation", bearer(assertion), nil, &installation)
		return assertion, err
	}
	assertion, err := find(time.Now())
	var refusal *forgeError
	if errors.As(err, &refusal) && refusal.status == http.StatusUnauthorized && time.Since(refusal.date).Abs() < maxClockError {
		assertion, err = find(refusal.date) // by the clock of the server
	}
	var made struct {
		Token        string `json:"token"`
		Repositories []struct {
			Name string `json:"full_name"`
		} `json:"repositories"`
	}
	if err == nil {
		_, err = c.send(ctx, http.MethodPost, fmt.Sprintf("%s/app/installations/%d/access_tokens", api, installation.ID), bearer(assertion),
			map[string]any{"repositories": []string{name}, "permissions": permissions}, &made)
	}
	if err != nil {
		hint := ""
		if errors.As(err, &refusal) {
			hint = map[int]string{
				http.StatusUnauthorized: "; check " + appIDKey + ", " + appPrivateKey + " and the clock of the node", http.StatusNotFound: "; install the App for this repository",
				http.StatusUnprocessableEntity: "; the App needs the permissions contents and pull requests, read and write", http.StatusMovedPermanently: "; use the new URL of the repository",
			}[refusal.status]
		}
		return "", revoke, fmt.Errorf("the GitHub App %s gets no token for %s: %w%s", app.id, project, err, hint)
	}
	revoke = func() {
		c.revocations.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revocationTimeout)
			defer cancel()
			if _, err := c.send(ctx, http.MethodDelete, api+"/installation/token", bearer(made.Token), nil, nil); err != nil {
				c.log.Warn("A token was not revoked, and expires within an hour", "repository", project, "error", err)
			}
		})
	}
	if !tokenExpression.MatchString(made.Token) {
		return "", func() {}, fmt.Errorf("%s made no valid token for %s", api, project)
	}
	for _, other := range made.Repositories {
		if !strings.EqualFold(other.Name, project) {
			revoke()
			return "", func() {}, permanentError{fmt.Errorf("%s made a token for %q instead of %s", api, other.Name, project)}
		}
	}
	return made.Token, revoke, nil
}
