package controller

import (
	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kube"
)

// TrimSession is a cache transform. A trimmed session keeps the fields that decisions on other sessions read: its user, its
// SessionRunner, its workspace and its status.
var TrimSession = kube.TrimLarge(func(s *v1alpha1.AgenticSession) {
	spec := &s.Spec
	spec.Prompt, spec.Repos, spec.Agent, spec.EnvironmentVariables = "", nil, v1alpha1.SessionAgent{}, nil
})
