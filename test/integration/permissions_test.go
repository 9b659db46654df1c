package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/yardmaster/yardmaster/test/permissions"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

// watchingControllers are the controllers that work in watched namespaces.
var watchingControllers = []string{"agenticsession", "egressproxy", "policy", "queue", "schedule", "sequentialjob", "workerpool"}

func permissionsPage(t *testing.T) permissions.Page {
	t.Helper()
	page, err := permissions.ReadPage(filepath.Join(repositoryRoot, "docs", "reference", "permissions.md"))
	require.NoError(t, err)
	return page
}

// The operator of each deployment, and the gateway, have exactly the permissions on the page: for each controller alone
// and for all together, with Roles in some namespaces and with ClusterRoles.
func TestPermissionsEqualTheReferencePage(t *testing.T) {
	t.Parallel()
	page := permissionsPage(t)
	for _, controllers := range []string{"*", "*,-workerpool", "agenticsession", "egressproxy", "jobreport", "policy", "queue", "schedule", "sequentialjob", "workerpool"} {
		for _, clusterWide := range []bool{false, true} {
			scope := "some namespaces"
			if clusterWide {
				scope = "all namespaces"
			}
			t.Run(controllers+" in "+scope, func(t *testing.T) {
				t.Parallel()
				d := installPermissions(t, controllers, clusterWide)
				want := func(everywhere, own, watched, reported []string) {
					t.Helper()
					if clusterWide {
						everywhere = append(everywhere, watched...)
					}
					d.wantPermissions(t, d.operator, everywhere, own)
					d.wantPermissions(t, d.watched, everywhere, watched)
					d.wantPermissions(t, d.reported, everywhere, reported)
					d.wantPermissions(t, "kube-system", everywhere)
				}
				reported := page.Columns(permissions.ReportedNamespaces, "jobreport", "openreports")
				if !d.isEnabled("jobreport") {
					reported = nil
				}
				want(page.Columns(permissions.AllNamespaces, append([]string{"metrics", "admission policies", "identity", "API server"}, d.watching()...)...),
					page.Columns(permissions.OperatorNamespace, "leader election", "workers", "own Pod"),
					page.Columns(permissions.WatchedNamespaces, d.watching()...), reported)
				if controllers == "queue" {
					d.serviceAccount = gatewayAccount
					want(page.Columns(permissions.Gateway, "all namespaces"), page.Columns(permissions.Gateway, "own namespace"),
						page.Columns(permissions.Gateway, "served namespaces"), nil)
				}
			})
		}
	}
}

// deployment has the permissions of `make deploy` for a ServiceAccount of its own.
type deployment struct {
	controllers string
	// serviceAccount whose permissions are compared: that of the operator unless a test changes it.
	serviceAccount string
	// operator, watched and reported are namespaces: that of the operator, one in which its
	// controllers work, and one that it reports on.
	operator, watched, reported string
}

func (d *deployment) account() string {
	return "system:serviceaccount:" + d.operator + ":" + d.serviceAccount
}

func (d *deployment) isEnabled(controller string) bool {
	selectors := strings.Split(d.controllers, ",")
	return slices.Contains(selectors, controller) || slices.Contains(selectors, "*") && !slices.Contains(selectors, "-"+controller)
}

func (d *deployment) watching() []string {
	return slices.DeleteFunc(slices.Clone(watchingControllers), func(name string) bool { return !d.isEnabled(name) })
}

// wantPermissions waits until the ServiceAccount has these permissions: the API server caches Roles.
func (d *deployment) wantPermissions(t *testing.T, ns string, lists ...[]string) {
	t.Helper()
	want, diff := permissions.Union(lists...), ""
	defer func() {
		if diff != "" {
			t.Errorf("permissions in %s (-want, +got):\n%s", ns, diff)
		}
	}()
	poll.Until(t, "the permissions in "+ns, func() bool {
		got, err := permissions.OfServiceAccount(t.Context(), config, d.account(), ns)
		require.NoError(t, err)
		diff = cmp.Diff(want, got)
		return diff == ""
	})
}

// installPermissions creates the Roles and bindings that `make deploy` creates. The operator's namespace
// is that of the test, with which the names of objects without a namespace end, so that tests do not affect each other.
func installPermissions(t *testing.T, controllers string, clusterWide bool) *deployment {
	t.Helper()
	d := &deployment{controllers: controllers, serviceAccount: "yardmaster", operator: namespace(t), watched: namespace(t), reported: namespace(t)}
	names := strings.NewReplacer("overlay-operator", d.operator, "overlay-watched", d.watched, "overlay-reported", d.reported)
	for _, object := range bindingsAndRoles(t, names.Replace(overlayOf(t, controllers, clusterWide))) {
		mustCreate(t, object)
	}
	return d
}

// overlays are the manifests of installPermissions, which replaces the names of their namespaces.
var overlays sync.Map

// overlayOf builds the manifests for these controllers once for all tests.
func overlayOf(t *testing.T, controllers string, clusterWide bool) string {
	t.Helper()
	namespaces := "overlay-watched"
	if clusterWide {
		namespaces = "*"
	}
	directory := strings.NewReplacer("*", "all", ",", "-").Replace("permissions-" + controllers + "-in-" + namespaces)
	build, _ := overlays.LoadOrStore(directory, sync.OnceValue(func() string {
		return buildOverlay(t, directory, controllers, namespaces, "jobreport-openreports,gateway", "overlay-reported", "", "overlay-operator")
	}))
	return build.(func() string)()
}

// buildOverlay returns the manifests of `make deploy`. More arguments are those of hack/overlay.
func buildOverlay(t *testing.T, name, controllers, namespaces, components, reported string, more ...string) string {
	t.Helper()
	overlay := filepath.Join("dist", name) // it refers to ../../config
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Join(repositoryRoot, overlay)) })
	testenv.Run(t, "hack/overlay", append([]string{overlay, "yardmaster:dev", controllers, namespaces, components, reported}, more...)...)
	return testenv.Run(t, "kustomize", "build", overlay)
}

// bindingsAndRoles returns the bindings of a manifest and the Roles that they refer to. The others are
// for users.
func bindingsAndRoles(t *testing.T, manifest string) []*unstructured.Unstructured {
	t.Helper()
	var roles, all []*unstructured.Unstructured
	bound := map[string]bool{}
	for _, object := range testenv.Decode(t, manifest) {
		switch object.GetKind() {
		case "Role", "ClusterRole":
			roles = append(roles, object)
		case "RoleBinding", "ClusterRoleBinding":
			name, _, _ := unstructured.NestedString(object.Object, "roleRef", "name")
			bound[name] = true
			all = append(all, object)
		}
	}
	for _, role := range roles {
		if bound[role.GetName()] {
			all = append(all, role)
		}
	}
	return all
}

func readManifests(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return testenv.Decode(t, string(raw))
}

// Users set the namespace in a kustomization of theirs, and the bindings, the webhooks and the names in certificates
// follow. In an installation for some namespaces, the Roles stay in these.
func TestManifestsFollowTheNamespaceOfAUsersKustomization(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, directory := range []string{"config", "examples/install"} {
		require.NoError(t, os.CopyFS(filepath.Join(root, directory), os.DirFS(filepath.Join(repositoryRoot, directory))))
	}
	components := []string{"admission-policy", "cert-manager", "default-broker", "gateway", "jobreport-alerts", "prometheus", "queue-alerts", "webhook-network-policy"}
	writeKustomization(t, filepath.Join(root, "config", "platform"), "namespace: platform\nresources: [../cluster-wide]\n", nil)
	writeKustomization(t, filepath.Join(root, "config", "platform-with-components"), "resources: [../platform]\n", components)
	writeKustomization(t, filepath.Join(root, "config", "teams-with-components"), "resources: [../../examples/install]\n", components)
	for directory, namespaces := range map[string][]string{
		"config/platform":                 {"platform"},
		"config/platform-with-components": {"platform"},
		"examples/install":                {"platform", "team-a", "team-b"},
		"config/teams-with-components":    {"platform", "team-a", "team-b"},
	} {
		t.Run(directory, func(t *testing.T) {
			manifest := testenv.Run(t, "kustomize", "build", filepath.Join(root, directory))
			for i, line := range strings.Split(manifest, "\n") {
				require.True(t, !strings.Contains(line, "yardmaster-system"), "line %d of the manifest still names the default namespace: %s", i+1, line)
			}
			for _, object := range testenv.Decode(t, manifest) {
				if ns := object.GetNamespace(); ns != "" && !slices.Contains(namespaces, ns) {
					t.Errorf("%s %s is in namespace %q", object.GetKind(), object.GetName(), ns)
				}
			}
		})
	}
}

func TestWebhooksAreLimitedToTheWatchedNamespaces(t *testing.T) {
	t.Parallel()
	const condition = `"team-a,team-b".split(",").exists(watched, watched in ["", request.namespace])`
	manifest := buildOverlay(t, "limited-webhooks", "*", "team-a,team-b", "admission-policy", "")
	manifest += "---\n" + buildOverlay(t, "limited-mutating-webhook", "*", "team-a,team-b", "", "")
	// In each manifest, 6 webhooks, and two policies or webhooks that record users.
	require.Equal(t, 16, strings.Count(manifest, condition))
}

// Tools such as Argo CD compare the namespace of what they applied with that of the object.
func TestObjectsOfTheClusterHaveNoNamespace(t *testing.T) {
	t.Parallel()
	components := ""
	if hasMutatingAdmissionPolicies(t) {
		components = "admission-policy"
	}
	for name, namespaces := range map[string]string{"some": "team-a,team-b", "all": "*"} {
		manifest := buildOverlay(t, "no-namespace-"+name, "*", namespaces, components, "")
		manifest += "---\n" + testenv.Run(t, "kustomize", "build", "config/shared")
		for _, object := range testenv.Decode(t, manifest) {
			mapping, err := cluster.RESTMapper().RESTMapping(object.GroupVersionKind().GroupKind(), object.GroupVersionKind().Version)
			require.NoError(t, err)
			if namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace; namespaced != (object.GetNamespace() != "") {
				t.Errorf("%s %s has the namespace %q", object.GetKind(), object.GetName(), object.GetNamespace())
			}
		}
	}
}

func writeKustomization(t *testing.T, directory, text string, components []string) {
	t.Helper()
	if len(components) > 0 {
		text += "components:\n"
	}
	for _, component := range components {
		text += "- ../components/" + component + "\n"
	}
	require.NoError(t, os.MkdirAll(directory, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(directory, "kustomization.yaml"), []byte(text), 0o600))
}
