package main

import (
	"strings"
	"testing"
)

func TestAValueForAFieldThatTheManifestLacksIsAnError(t *testing.T) {
	o := &object{}
	o.Object = map[string]any{"kind": "Deployment"}
	o.set("$.Values.replicas", "spec", "replicas")
	if _, err := o.render(); err == nil || !strings.Contains(err.Error(), "spec.replicas") {
		t.Errorf("error %v, want one about spec.replicas", err)
	}
}
