package sessiongit

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The forges.
const (
	GitHub = "GitHub"
	GitLab = "GitLab"
)

const forgeTimeout = 20 * time.Second

type forge interface {
	// open opens a pull request, or finds the open pull request, and returns its URL.
	open(ctx context.Context, p *pullRequest) (string, error)
}

type pullRequest struct {
	url, title, body, head, base string
	draft                        bool
}

// newForge returns nil without a forge.
func newForge(client *forgeClient) (forge, error) {
	switch client.forge {
	case "":
		return nil, nil //nolint:nilnil // no forge is valid
	case GitHub:
		return (*gitHub)(client), nil
	case GitLab:
		return (*gitLab)(client), nil
	}
	return nil, fmt.Errorf("--forge is %q, must be %s or %s", client.forge, GitHub, GitLab)
}

// newHTTPClient returns a client that trusts the authorities in a file, as git does; without a file, the system's authorities.
func newHTTPClient(caFile string) (*http.Client, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if caFile != "" {
		raw, err := os.ReadFile(caFile)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(raw) {
			return nil, fmt.Errorf("%s contains no certificate", caFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{
		Timeout: forgeTimeout, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // it would get the token
	}, nil
}

// forgeClient sends requests to the API of a forge.
type forgeClient struct {
	// forge is empty if no pull requests are opened. api is the URL of the API; if empty, the repository's host determines it.
	forge, api, credentials string
	scope                   Scope
	http                    *http.Client
	log                     *slog.Logger
	// revocations are the requests that revoke tokens of a GitHub App.
	revocations sync.WaitGroup
}

// authorization is a header of a request, whose value is a token behind a prefix.
type authorization struct{ header, prefix, token string }

func bearer(token string) authorization { return authorization{"Authorization", "Bearer ", token} }

// permanentError remains if nobody changes the Secret or the SessionRunner.
type permanentError struct{ error }

// forgeError is an answer of a forge that is not success.
type forgeError struct {
	status int
	text   string
	// date of the answer by the clock of the server; zero if it is not known.
	date time.Time
	// wait is how long the forge wants no further request; 0 if it does not say so.
	wait time.Duration
}

// Error implements error.
func (e *forgeError) Error() string { return e.text }

// isPermanent reports whether the same request will fail again.
func (e *forgeError) isPermanent() bool {
	return e.wait == 0 && e.status < http.StatusInternalServerError
}

const (
	// limitedWait is how long a client of GitHub that has sent too many requests waits at least, if the answer does not say it.
	limitedWait = time.Minute
	maxWait     = time.Hour
)

func newForgeError(r *http.Response, text string) *forgeError {
	e := &forgeError{status: r.StatusCode, text: text}
	e.date, _ = http.ParseTime(r.Header.Get("Date"))
	seconds, err := strconv.Atoi(r.Header.Get("Retry-After"))
	isLimited := r.StatusCode == http.StatusTooManyRequests || r.StatusCode == http.StatusForbidden && r.Header.Get("X-Ratelimit-Remaining") == "0"
	switch {
	case err == nil && seconds > 0:
		e.wait = min(time.Duration(seconds)*time.Second, maxWait)
	case isLimited:
		e.wait = limitedWait
	}
	return e
}

// locate returns the URL of the API, and the path of the repository. Only a repository that gets the credentials has them.
func (c *forgeClient) locate(repository string, byHost func(host string) string) (api, project string, err error) {
	grant := c.scope.grant(repository)
	if grant == nil {
		return "", "", fmt.Errorf("the SessionRunner allows no credentials for %s: add it to git.repositories", repository)
	}
	host := grant.authority()
	if grant.isSSH {
		host = grant.host
	}
	return cmp.Or(strings.TrimSuffix(c.api, "/"), byHost(host)), grant.path, nil
}

// send sends a request and decodes a successful response, unless answer is nil. It returns the status.
func (c *forgeClient) send(ctx context.Context, method, url string, by authorization, body, answer any) (int, error) {
	var encoded io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return 0, err
		}
		encoded = bytes.NewReader(raw)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, encoded) //nolint:gosec // locate accepts only repositories of the SessionRunner
	if err != nil {
		return 0, err
	}
	request.Header.Set(by.header, by.prefix+by.token)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	response, err := c.http.Do(request) //nolint:gosec // the same
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return 0, err
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		text := strings.ReplaceAll(string(raw), by.token, "[redacted]")
		return response.StatusCode, newForgeError(response, fmt.Sprintf("%s %s: %s: %s", method, url, response.Status, text[:min(len(text), maxErrorBytes)]))
	}
	if answer == nil {
		return response.StatusCode, nil
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return response.StatusCode, fmt.Errorf("%s %s: %w", method, url, err)
	}
	return response.StatusCode, nil
}

// gitHubAPI returns the URL of the API of GitHub, or of GitHub Enterprise Server, on a host.
func gitHubAPI(host string) string {
	if host == "github.com" {
		return "https://api.github.com"
	}
	return "https://" + host + "/api/v3"
}

type gitHub forgeClient

func (f *gitHub) open(ctx context.Context, p *pullRequest) (string, error) {
	c := (*forgeClient)(f)
	api, project, err := c.locate(p.url, gitHubAPI)
	if err != nil {
		return "", err
	}
	token, revoke, err := c.appToken(ctx, p.url, proposeAccess)
	if err != nil {
		return "", err
	}
	defer revoke()
	if token == "" {
		if token, err = readCredential(c.credentials, false); err != nil {
			return "", err
		}
	}
	pulls := api + "/repos/" + project + "/pulls"
	type pull struct {
		URL string `json:"html_url"`
	}
	created := pull{}
	status, err := c.send(ctx, http.MethodPost, pulls, bearer(token),
		map[string]any{"title": p.title, "body": p.body, "head": p.head, "base": p.base, "draft": p.draft}, &created)
	if status != http.StatusUnprocessableEntity {
		return created.URL, err
	}
	// A pull request is open already, or GitHub has another reason.
	owner, _, _ := strings.Cut(project, "/")
	var open []pull
	query := url.Values{"state": {"open"}, "head": {owner + ":" + p.head}, "base": {p.base}}
	if _, listErr := c.send(ctx, http.MethodGet, pulls+"?"+query.Encode(), bearer(token), nil, &open); listErr != nil {
		return "", listErr
	}
	if len(open) == 0 {
		return "", err
	}
	return open[0].URL, nil
}

type gitLab forgeClient

func (f *gitLab) open(ctx context.Context, p *pullRequest) (string, error) {
	c := (*forgeClient)(f)
	api, project, err := c.locate(p.url, func(host string) string { return "https://" + host + "/api/v4" })
	if err != nil {
		return "", err
	}
	by := authorization{header: "Private-Token"}
	if by.token, err = readCredential(c.credentials, false); err != nil {
		return "", err
	}
	requests := api + "/projects/" + url.PathEscape(project) + "/merge_requests"
	type mergeRequest struct {
		URL string `json:"web_url"`
	}
	title := p.title
	if p.draft {
		title = "Draft: " + title // the API has no field for it
	}
	created := mergeRequest{}
	status, err := c.send(ctx, http.MethodPost, requests, by,
		map[string]string{"title": title, "description": p.body, "source_branch": p.head, "target_branch": p.base}, &created)
	if status != http.StatusConflict {
		return created.URL, err
	}
	var open []mergeRequest
	query := url.Values{"state": {"opened"}, "source_branch": {p.head}, "target_branch": {p.base}}
	if _, err := c.send(ctx, http.MethodGet, requests+"?"+query.Encode(), by, nil, &open); err != nil {
		return "", err
	}
	if len(open) == 0 {
		return "", err
	}
	return open[0].URL, nil
}
