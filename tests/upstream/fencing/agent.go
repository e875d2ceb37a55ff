package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// agent is the fence agent of a case with what it was started with.
type agent struct {
	given *Agent
	began time.Time
	lock  sync.Mutex
	runs  []Run
}

func (a *agent) call(number int) Call {
	if len(a.given.Calls) == 0 {
		return Call{}
	}
	return a.given.Calls[min(number, len(a.given.Calls)-1)]
}

// run is the agent as a function. It ends as os/exec does: a process that is killed at its time-out ends with an error of
// the process, and only a command that never started with the error of the context. The real runs prove that.
func (a *agent) run(ctx context.Context, command []string) (string, string, error) {
	if err := ctx.Err(); err != nil {
		return "", "", err
	}
	a.lock.Lock()
	call := a.call(len(a.runs))
	a.runs = append(a.runs, Run{At: time.Since(a.began).Seconds(), Parameters: sorted(command[1:])})
	a.lock.Unlock()
	if a.lacks(command[1:]) {
		return "", "", errors.New("exit status 1")
	}
	select {
	case <-ctx.Done():
		return "", "", errors.New("signal: killed")
	case <-time.After(seconds(call.Takes)):
	}
	if call.Fails {
		return "", "", errors.New("exit status 1")
	}
	return "Success: Rebooted", "", nil
}

// lacks returns whether a parameter that it needs is not there or empty.
func (a *agent) lacks(parameters []string) bool {
	return slices.ContainsFunc(a.given.Needs, func(name string) bool {
		return !slices.ContainsFunc(parameters, func(each string) bool {
			key, value, _ := strings.Cut(each, "=")
			return key == name && value != ""
		})
	})
}

// install writes the agent as a script of this name, which appends its runs to a file, and returns how to read them.
func (a *agent) install(name string) func() []Run {
	folder, err := os.MkdirTemp("", "fencing-")
	if err != nil {
		panic(err)
	}
	file := filepath.Join(folder, "runs")
	script := &strings.Builder{}
	fmt.Fprintf(script, "#!/bin/sh\nnumber=$(cat %[1]s 2>/dev/null | wc -l)\necho \"$(date +%%s.%%N) $*\" >> %[1]s\n", file)
	for _, each := range a.given.Needs {
		fmt.Fprintf(script, "case \" $*\" in *\" %s=\"[!\\ ]*) ;; *) exit 1;; esac\n", each)
	}
	fmt.Fprintln(script, "case $number in")
	for number := range a.given.Calls {
		call, pattern := a.call(number), strconv.Itoa(number)
		if number == len(a.given.Calls)-1 {
			pattern = "*"
		}
		if call.Fails {
			// A child that inherits the output outlives a try that is killed, and the operator waits for it. Those of fence
			// agents do not inherit it (ClusterLabs/fence-agents:lib/fencing.py.py#run_command).
			fmt.Fprintf(script, "%s) sleep %f >/dev/null 2>&1; exit 1;;\n", pattern, call.Takes)
		} else {
			fmt.Fprintf(script, "%s) exec sleep %f;;\n", pattern, call.Takes)
		}
	}
	fmt.Fprintln(script, "esac")
	if err := os.WriteFile(filepath.Join(folder, name), []byte(script.String()), 0o755); err != nil {
		panic(err)
	}
	if err := os.Setenv("PATH", folder+":"+os.Getenv("PATH")); err != nil {
		panic(err)
	}
	return func() []Run {
		text, _ := os.ReadFile(file)
		found := []Run{}
		for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			at, parameters, started := strings.Cut(line, " ")
			if when, err := strconv.ParseFloat(at, 64); started && err == nil {
				since := when - float64(a.began.UnixNano())/1e9
				found = append(found, Run{At: since, Parameters: sorted(strings.Fields(parameters))})
			}
		}
		return found
	}
}

func sorted(parameters []string) []string {
	found := slices.Clone(parameters)
	slices.Sort(found)
	return found
}

func seconds(number float64) time.Duration { return time.Duration(number * float64(time.Second)) }
