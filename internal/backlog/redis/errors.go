package redis

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/yardmaster/yardmaster/internal/backlog/source"
	"github.com/yardmaster/yardmaster/internal/broker"
)

// The words that the server's errors begin with, by class.
var prefixes = map[broker.Class][]string{
	broker.Unauthorised: {"NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH", "ERR invalid password", "ERR Client sent AUTH"},
	broker.Unreachable:  {"LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "READONLY", "BUSY ", "ERR max number of clients"},
	broker.Invalid:      {"WRONGTYPE", "ERR unknown command", "ERR DB index", "ERR syntax"},
	broker.Missing:      {"NOGROUP", "ERR no such key"},
}

// Classify gives an error its class, and tells what was being done.
func Classify(doing string, err error) error {
	if err == nil {
		return nil
	}
	if broker.ClassOf(err) != broker.Unknown {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return broker.Fail(broker.Unreachable, "%s: %w", doing, err)
	}
	for class, words := range prefixes {
		for _, word := range words {
			if redis.HasErrorPrefix(err, word) || strings.HasPrefix(err.Error(), word) {
				return broker.Fail(class, "%s: %w", doing, err)
			}
		}
	}
	return source.Classify(doing, err)
}
