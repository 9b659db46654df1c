package redisclient

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/broker"
)

// errorPrefixesByClass are prefixes of error messages of the server.
var errorPrefixesByClass = map[broker.ErrorClass][]string{
	broker.ClassUnauthorized: {"NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH", "ERR invalid password", "ERR Client sent AUTH"},
	broker.ClassUnreachable:  {"LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "BUSY ", "ERR max number of clients"},
	broker.ClassInvalid:      {"WRONGTYPE", "ERR unknown command", "ERR DB index", "ERR syntax"},
	broker.ClassNotFound:     {"NOGROUP", "ERR no such key"},
}

// ClassifyError adds the operation and a class to an error.
func ClassifyError(operation string, err error) error {
	if err == nil {
		return nil
	}
	if broker.ClassOf(err) != broker.ClassUnknown {
		return fmt.Errorf("%s: %w", operation, err)
	}
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return broker.Errorf(broker.ClassUnreachable, "%s: %w", operation, err)
	}
	for class, words := range errorPrefixesByClass {
		for _, word := range words {
			if redis.HasErrorPrefix(err, word) || strings.HasPrefix(err.Error(), word) {
				return broker.Errorf(class, "%s: %w", operation, err)
			}
		}
	}
	return broker.ClassifyNetworkError(operation, err)
}
