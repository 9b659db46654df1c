// Package cluster starts, inspects and removes local clusters.
package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/yardmaster/yardmaster/localcluster/internal/build"
	"github.com/yardmaster/yardmaster/localcluster/internal/component"
	"github.com/yardmaster/yardmaster/localcluster/internal/kubeapi"
)

// Mode is the kind of a cluster.
type Mode string

// The modes.
const (
	Node         Mode = "node"
	ControlPlane Mode = "control-plane"
)

// Options are the user's choices.
type Options struct {
	Mode     Mode
	Port     int // of the API server on the loopback interface; 0 takes a free one
	Nodes    int // simulated ones
	JobBatch time.Duration
}

// Validate returns an error that names the first invalid option.
func (o Options) Validate() error {
	if o.Mode != Node && o.Mode != ControlPlane {
		return fmt.Errorf("unknown mode %q: the modes are %s and %s", o.Mode, Node, ControlPlane)
	}
	if o.Nodes < 1 {
		return fmt.Errorf("a cluster needs at least one node, not %d", o.Nodes)
	}
	if o.Port < 0 || o.Port > 65535 {
		return fmt.Errorf("%d is not a port: use 0 to 65535", o.Port)
	}
	if o.JobBatch <= 0 {
		return fmt.Errorf("the Job controller's batch period must be positive, not %s", o.JobBatch)
	}
	return nil
}

// Cluster is one local cluster, running or not.
type Cluster struct {
	Name string
	Dir  string // everything of this cluster; it exists while the cluster does
	home string // what clusters share
}

// record is the content of cluster.json, which exists while the cluster runs.
type record struct {
	Options
	Created  time.Time
	Programs build.Programs
}

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)

// Open returns the cluster of that name. It need not exist.
func Open(name string) (*Cluster, error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("%q is not a valid cluster name: use up to 32 lower-case letters, digits and dashes", name)
	}
	home, err := Home()
	if err != nil {
		return nil, err
	}
	return &Cluster{Name: name, Dir: filepath.Join(home, "clusters", name), home: home}, nil
}

// Home is the directory of all clusters and of the programs built for them.
func Home() (string, error) {
	cache := os.Getenv("XDG_CACHE_HOME")
	if !filepath.IsAbs(cache) { // as the XDG specification says
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(home, ".cache")
	}
	return filepath.Join(cache, "yardmaster", "localcluster"), nil
}

// Programs is the directory of the programs that were built.
func Programs(home string) string { return filepath.Join(home, "programs") }

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.layout().PKI("admin.kubeconfig") }

func (c *Cluster) layout() component.Layout { return component.Layout{Root: c.Dir} }

func (c *Cluster) recordPath() string { return filepath.Join(c.Dir, "cluster.json") }

// cgroup is a name that no cluster of another directory has.
func (c *Cluster) cgroup() string {
	sum := sha256.Sum256([]byte(c.Dir))
	return "localcluster-" + c.Name + "-" + hex.EncodeToString(sum[:4])
}

// read returns nil if there is no such cluster.
func (c *Cluster) read() (*record, error) {
	content, err := os.ReadFile(c.recordPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &record{}
	if err := json.Unmarshal(content, r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", c.recordPath(), err)
	}
	return r, nil
}

func (c *Cluster) api(r *record) (*kubeapi.Client, error) {
	return kubeapi.New(r.server(), c.layout().File("pki"))
}

// server is the API server's URL on the host.
func (r *record) server() string { return fmt.Sprintf("https://127.0.0.1:%d", r.Port) }

// ErrDown is returned by commands that need a running cluster.
var ErrDown = errors.New("the cluster is not up: start it with localcluster up")
