package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/yardmaster/yardmaster/test/require"
)

// kubectl apply, edit and scale read an object before they change it. A patch that changes nothing returns the object too, so reading it
// gives nobody more.
func TestARoleOfUsersThatChangesAnObjectReadsIt(t *testing.T) {
	for _, role := range rolesOfUsers(t) {
		for _, rule := range role.Rules {
			changes := slices.Contains(rule.Verbs, "patch") || slices.Contains(rule.Verbs, "update")
			if changes && !slices.Contains(rule.Verbs, "get") && !slices.Contains(rule.Resources, "events") {
				t.Errorf("%s changes %v and cannot read them", role.Name, rule.Resources)
			}
		}
	}
}

// Kubernetes adds these rules to the roles of everyone who may view or edit a namespace.
func TestAnAggregatedRoleReachesOnlyObjectsOfTheAPI(t *testing.T) {
	allowed := map[string][]string{
		"view":  {"get", "list", "watch"},
		"edit":  {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"},
		"admin": {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "approve", "administer"},
	}
	for _, role := range rolesOfUsers(t) {
		for level, verbs := range allowed {
			if role.Labels["rbac.authorization.k8s.io/aggregate-to-"+level] != "true" {
				continue
			}
			for _, rule := range role.Rules {
				limits := strings.Contains(strings.Join(rule.Resources, " "), "policies") || slices.Contains(rule.Resources, "sessionrunners")
				changes := slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains(allowed["view"], verb) })
				isWider := slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains(verbs, verb) })
				if !slices.Equal(rule.APIGroups, []string{"yardmaster.dev"}) || isWider || level != "admin" && limits && changes {
					t.Errorf("%s gives %v of %v to the role %s", role.Name, rule.Verbs, rule.Resources, level)
				}
			}
		}
	}
}

func rolesOfUsers(t *testing.T) []rbacv1.ClusterRole {
	t.Helper()
	paths, err := filepath.Glob("../../config/rbac/users/*.yaml")
	require.NoError(t, err)
	var roles []rbacv1.ClusterRole
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		for document := range bytes.SplitSeq(raw, []byte("\n---\n")) {
			var role rbacv1.ClusterRole
			if err := yaml.Unmarshal(document, &role); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if role.Kind == "ClusterRole" {
				roles = append(roles, role)
			}
		}
	}
	require.True(t, len(roles) != 0, "there are no roles")
	return roles
}
