// Command permissions writes docs/reference/permissions.md: what each Role of the operator allows, as
// a table for each scope. It reads the manifests in config/.
package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/hack/controllers"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: permissions <page>")
		os.Exit(2)
	}
	watching, err := controllers.Watching("config")
	if err != nil {
		fmt.Fprintln(os.Stderr, "permissions:", err)
		os.Exit(1)
	}
	page, err := renderPage(sections(watching))
	if err == nil {
		err = os.WriteFile(os.Args[1], []byte(page), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "permissions:", err)
		os.Exit(1)
	}
}

// section is a scope of permissions, with a column for each part of an installation.
type section struct {
	title, text string
	columns     []column
}

// column is a part of an installation, and the file with its Role or ClusterRole.
type column struct{ title, kind, file string }

const (
	clusterRole = "ClusterRole"
	role        = "Role"
)

func controllerColumn(name string) column {
	return column{name, clusterRole, "config/rbac/controllers/" + name + "/role.yaml"}
}

func finalizerColumn(name string) column {
	return column{name, clusterRole, "config/rbac/finalizers/" + name + "/role.yaml"}
}

const introduction = `# Permissions of the operator

Generated from the manifests in [config/rbac](../../config/rbac): do not edit. An installation has the
permissions of the columns that it consists of, and no others:
` + "`make deploy CONTROLLERS=sequentialjob,queue`" + ` installs those of two controllers.
[operations.md](../operations.md#permissions) says what they are for, and
[security.md](../security.md) what admission policies deny in addition.
A test compares these tables with what the API server answers for each controller alone and for all
together, in some namespaces and in all. <!-- proof: TestPermissionsEqualTheReferencePage -->
`

// sections returns those of the page, with the controllers that work in the watched namespaces. test/permissions finds them by
// their titles.
func sections(watching []string) []section {
	watched := section{title: "Watched namespaces", text: "In the namespaces of `NAMESPACES`; with `NAMESPACES='*'`, in all."}
	for _, name := range watching {
		watched.columns = append(watched.columns, controllerColumn(name))
	}
	return append([]section{watched}, otherSections...)
}

var otherSections = []section{{
	title: "Reported namespaces",
	text:  "In the namespaces of `REPORT_NAMESPACES`. `openreports`: with `COMPONENTS=jobreport-openreports`.",
	columns: []column{
		controllerColumn("jobreport"), {"openreports", clusterRole, "config/rbac/jobreport-openreports/role.yaml"},
	},
}, {
	title: "All namespaces",
	text:  "In all namespaces and for objects without a namespace. With `clusterObjects.create=false`, the Helm chart omits the first four columns, and limits the others to the watched namespaces.",
	columns: []column{
		{"metrics", clusterRole, "config/rbac/operator/metrics.yaml"},
		{"API server", clusterRole, "config/rbac/operator/api_server.yaml"},
		{"admission policies", clusterRole, "config/rbac/operator/admission_policies.yaml"},
		{"identity", clusterRole, "config/rbac/operator/identity.yaml"},
		finalizerColumn("queue"), finalizerColumn("sequentialjob"), finalizerColumn("workerpool"),
	},
}, {
	title: "The operator's namespace",
	text:  "`broker`: with `COMPONENTS=default-broker`.",
	columns: []column{
		{"leader election", role, "config/rbac/operator/leader_election.yaml"},
		{"workers", role, "config/rbac/operator/worker_admin.yaml"},
		{"own Pod", role, "config/rbac/operator/own_pod.yaml"},
		{"broker", role, "config/components/default-broker/role.yaml"},
	},
}, {
	title: "The gateway",
	text: "With `COMPONENTS=gateway`, of the ServiceAccount `yardmaster-gateway`: in the namespaces of `NAMESPACES`, in all\n" +
		"namespaces, and in the operator's namespace.",
	columns: []column{
		{"served namespaces", clusterRole, "config/rbac/gateway/role.yaml"},
		{"all namespaces", clusterRole, "config/components/gateway/reviews.yaml"},
		{"own namespace", role, "config/components/gateway/broker.yaml"},
	},
}}

func renderPage(sections []section) (string, error) {
	var page strings.Builder
	page.WriteString(introduction)
	for _, s := range sections {
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n", s.title, s.text)
		if err := s.renderTable(&page); err != nil {
			return "", err
		}
	}
	return page.String(), nil
}

func (s section) renderTable(page *strings.Builder) error {
	// cells has the verbs by resource and column.
	cells := map[string]map[string][]string{}
	header := []string{"Resource"}
	for _, c := range s.columns {
		header = append(header, c.title)
		rules, err := readRules(c.file, c.kind)
		if err != nil {
			return err
		}
		for i := range rules {
			for _, resource := range resourcesOf(&rules[i]) {
				if cells[resource] == nil {
					cells[resource] = map[string][]string{}
				}
				cells[resource][c.title] = append(cells[resource][c.title], rules[i].Verbs...)
			}
		}
	}
	writeRow(page, header)
	writeRow(page, slices.Repeat([]string{"---"}, len(header)))
	withoutQuotes := func(resource string) string { return strings.ReplaceAll(resource, "`", "") }
	byName := func(a, b string) int { return strings.Compare(withoutQuotes(a), withoutQuotes(b)) }
	for _, resource := range slices.SortedFunc(maps.Keys(cells), byName) {
		row := []string{resource}
		for _, c := range s.columns {
			row = append(row, joinVerbs(cells[resource][c.title]))
		}
		writeRow(page, row)
	}
	return nil
}

func writeRow(page *strings.Builder, cells []string) {
	fmt.Fprintf(page, "| %s |\n", strings.Join(cells, " | "))
}

// readRules returns the rules of the first Role of this kind in a file.
func readRules(file, kind string) ([]rbacv1.PolicyRule, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for document := range bytes.SplitSeq(raw, []byte("\n---\n")) {
		role := &rbacv1.ClusterRole{}
		if err := yaml.Unmarshal(document, role); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if role.Kind == kind {
			return role.Rules, nil
		}
	}
	return nil, fmt.Errorf("%s has no %s", file, kind)
}

// resourcesOf returns the resources of a rule as kubectl names them, such as "deployments.apps",
// followed by the name of the object if the rule is limited to one.
func resourcesOf(rule *rbacv1.PolicyRule) (all []string) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			resource, subresource, found := strings.Cut(resource, "/")
			if group != "" {
				resource += "." + group
			}
			if found {
				resource += "/" + subresource
			}
			for _, name := range names {
				all = append(all, strings.TrimSpace("`"+resource+"` "+name))
			}
		}
	}
	return all
}

// verbs in the order in which a cell lists them.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete"}

func joinVerbs(granted []string) string {
	slices.SortFunc(granted, func(a, b string) int { return slices.Index(verbs, a) - slices.Index(verbs, b) })
	return strings.Join(slices.Compact(granted), ", ")
}
