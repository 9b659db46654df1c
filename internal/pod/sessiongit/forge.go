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
	"net/http"
	"net/url"
	"os"
	"strings"
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
func newForge(s *settings, scope Scope) (forge, error) {
	client := &forgeClient{api: s.forgeURL, credentials: s.credentials, scope: scope}
	var err error
	if client.http, err = newHTTPClient(s.caFile); err != nil {
		return nil, err
	}
	switch s.forge {
	case "":
		return nil, nil //nolint:nilnil // no forge is valid
	case GitHub:
		return (*gitHub)(client), nil
	case GitLab:
		return (*gitLab)(client), nil
	}
	return nil, fmt.Errorf("--forge is %q, must be %s or %s", s.forge, GitHub, GitLab)
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

type forgeClient struct {
	// api is the URL of the API; if empty, the repository's host determines it.
	api, credentials string
	scope            Scope
	http             *http.Client
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

// send sends a request and decodes a successful response. It returns the status.
func (c *forgeClient) send(ctx context.Context, method, url, header, prefix string, body, answer any) (int, error) {
	token, err := readCredential(c.credentials, false)
	if err != nil {
		return 0, err
	}
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
	request.Header.Set(header, prefix+token)
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
		text := strings.ReplaceAll(string(raw), token, "[redacted]")
		return response.StatusCode, fmt.Errorf("%s %s: %s: %s", method, url, response.Status, text[:min(len(text), maxErrorBytes)])
	}
	return response.StatusCode, json.Unmarshal(raw, answer)
}

type gitHub forgeClient

func (f *gitHub) open(ctx context.Context, p *pullRequest) (string, error) {
	c := (*forgeClient)(f)
	api, project, err := c.locate(p.url, func(host string) string {
		if host == "github.com" {
			return "https://api.github.com"
		}
		return "https://" + host + "/api/v3"
	})
	if err != nil {
		return "", err
	}
	pulls := api + "/repos/" + project + "/pulls"
	type pull struct {
		URL string `json:"html_url"`
	}
	created := pull{}
	status, err := c.send(ctx, http.MethodPost, pulls, "Authorization", "Bearer ",
		map[string]any{"title": p.title, "body": p.body, "head": p.head, "base": p.base, "draft": p.draft}, &created)
	if status != http.StatusUnprocessableEntity {
		return created.URL, err
	}
	// A pull request is open already, or GitHub has another reason.
	owner, _, _ := strings.Cut(project, "/")
	var open []pull
	query := url.Values{"state": {"open"}, "head": {owner + ":" + p.head}, "base": {p.base}}
	if _, listErr := c.send(ctx, http.MethodGet, pulls+"?"+query.Encode(), "Authorization", "Bearer ", nil, &open); listErr != nil {
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
	requests := api + "/projects/" + url.PathEscape(project) + "/merge_requests"
	type mergeRequest struct {
		URL string `json:"web_url"`
	}
	title := p.title
	if p.draft {
		title = "Draft: " + title // the API has no field for it
	}
	created := mergeRequest{}
	status, err := c.send(ctx, http.MethodPost, requests, "Private-Token", "",
		map[string]string{"title": title, "description": p.body, "source_branch": p.head, "target_branch": p.base}, &created)
	if status != http.StatusConflict {
		return created.URL, err
	}
	var open []mergeRequest
	query := url.Values{"state": {"opened"}, "source_branch": {p.head}, "target_branch": {p.base}}
	if _, err := c.send(ctx, http.MethodGet, requests+"?"+query.Encode(), "Private-Token", "", nil, &open); err != nil {
		return "", err
	}
	if len(open) == 0 {
		return "", err
	}
	return open[0].URL, nil
}
