package sessiongit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"github.com/yardmaster/yardmaster/internal/pod/sessionsocket"
)

const (
	// socketName is the socket in the directory that both containers mount.
	socketName     = "git.sock"
	maxAnswerBytes = 1 << 20
)

// Repository is a repository in the session's inputs.
type Repository struct {
	URL      string `json:"url"`
	Branch   string `json:"branch"`
	AutoPush bool   `json:"autoPush"`
	// Depth is the number of commits of each branch; 0 for all.
	Depth     int    `json:"depth"`
	Directory string `json:"directory"`
	Push      struct {
		// Branch gets the commits. Base is the branch of the pull request.
		Branch string `json:"branch"`
		Base   string `json:"base"`
		Draft  bool   `json:"draft"`
	} `json:"push"`
}

// PushBranch returns the branch to which the commits of a session are pushed. Operators before v0.2.0 do not set it.
func (r *Repository) PushBranch(session string) string {
	return cmp.Or(r.Push.Branch, "session/"+session)
}

// Clone is the outcome of cloning a repository.
type Clone struct {
	// Directory of the repository, and Path of its clone without a working tree.
	Directory string `json:"directory"`
	Path      string `json:"path,omitempty"`
	// Branch that the session works on: that of its spec, or the HEAD of the server. An empty repository does not have it yet.
	Branch string `json:"branch,omitempty"`
	Error  string `json:"error,omitempty"`
	// Submodules of the branch.
	Submodules []Submodule `json:"submodules,omitempty"`
}

// Submodule is the outcome of cloning a submodule.
type Submodule struct {
	// Name of the submodule, its Directory in the working tree, its URL, and the Path of its clone.
	Name      string `json:"name"`
	Directory string `json:"directory"`
	URL       string `json:"url"`
	Path      string `json:"path,omitempty"`
	Error     string `json:"error,omitempty"`
	// Submodules of the submodule.
	Submodules []Submodule `json:"submodules,omitempty"`
}

// Push is the outcome of a push.
type Push struct {
	// Branch that has the commits. It is another branch than the requested one if that has commits of others.
	Branch         string `json:"branch,omitempty"`
	Commit         string `json:"commit,omitempty"`
	Pushed         bool   `json:"pushed"`
	PullRequestURL string `json:"pullRequestURL,omitempty"`
	Error          string `json:"error,omitempty"`
	// Incomplete means that the bundle needs commits that the server lacks: send a bundle with all commits.
	Incomplete bool `json:"incomplete,omitempty"`
}

// WorkflowDirectory is the name of the clone of a session's agent.workflow.
const WorkflowDirectory = ".workflow"

// branchSuffix is what a client can append to the branch of a repository, after a dash, for a further branch of the agent.
var branchSuffix = regexp.MustCompile(`^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$`)

// maxBranchSuffix bounds a suffix, in bytes.
const maxBranchSuffix = 100

// SuffixOf returns the suffix for a branch of the agent: its name, in which a dash replaces each sequence of other characters than
// letters and digits.
func SuffixOf(branch string) string {
	parts := strings.FieldsFunc(branch, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	suffix := strings.Join(parts, "-")
	return strings.TrimSuffix(suffix[:min(len(suffix), maxBranchSuffix)], "-")
}

// Client sends requests to the container with the credentials.
type Client struct{ http *http.Client }

// NewClient returns a client for the server in a directory.
func NewClient(directory string) *Client {
	path := filepath.Join(directory, socketName)
	return &Client{http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return sessionsocket.Dial(ctx, path) },
	}}}
}

// Clones waits until all repositories are cloned or have failed.
func (c *Client) Clones(ctx context.Context) ([]Clone, error) {
	var clones []Clone
	return clones, c.send(ctx, http.MethodGet, "/clones", nil, &clones)
}

// Push pushes the commits in a bundle of one reference: to the branch of the session, or with a suffix, to a branch beside it.
func (c *Client) Push(ctx context.Context, directory, suffix string, bundle io.Reader) (Push, error) {
	var push Push
	path := "/push/" + url.PathEscape(directory) + "?" + url.Values{"suffix": {suffix}}.Encode()
	return push, c.send(ctx, http.MethodPost, path, bundle, &push)
}

func (c *Client) send(ctx context.Context, method, path string, body io.Reader, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://git"+path, body)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the git container answered %s: %s", response.Status, bytes.TrimSpace(raw))
	}
	return json.Unmarshal(raw, answer)
}
